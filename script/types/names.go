package types

// Ints are the integer types by their names.
var Ints = map[string]*Type{
	"bool": BoolT, "_Bool": BoolT, "uint8": Uint8, "uint32": Uint32, "uint64": Uint64, "int32": Int32, "int64": Int64,
	"uint16": {Kind: Int, Size: 2}, "int8": {Kind: Int, Size: 1, Signed: true}, "int16": {Kind: Int, Size: 2, Signed: true},
	"char": {Kind: Int, Size: 1, Signed: true}, "short": {Kind: Int, Size: 2, Signed: true}, "int": Int32,
	"long": Int64, "size_t": Uint64, "unsigned int": Uint32, "unsigned long": Uint64, "unsigned char": Uint8,
	"long long": Int64, "unsigned long long": Uint64, "unsigned short": {Kind: Int, Size: 2},
	"uint8_t": Uint8, "uint16_t": {Kind: Int, Size: 2}, "uint32_t": Uint32, "uint64_t": Uint64,
	"int8_t": {Kind: Int, Size: 1, Signed: true}, "int16_t": {Kind: Int, Size: 2, Signed: true}, "int32_t": Int32, "int64_t": Int64,
	"u8": Uint8, "u16": {Kind: Int, Size: 2}, "u32": Uint32, "u64": Uint64, "pid_t": Int32, "uintptr_t": Uint64,
}

// Floats are the floating-point types by their names.
var Floats = map[string]*Type{"float": {Kind: Float, Size: 4}, "double": {Kind: Float, Size: 8}, "long double": {Kind: Float, Size: 16}}

// Kernels are types that kernels' interfaces name, beside those of C.
var Kernels = map[string]*Type{
	"unsigned": Uint32, "umode_t": Uint16, "uid_t": Uint32, "gid_t": Uint32, "loff_t": Int64, "off_t": Int64,
	"clockid_t": Int32, "timer_t": Int32, "key_t": Int32, "mqd_t": Int32, "aio_context_t": Uint64, "qid_t": Uint32,
	"key_serial_t": Int32, "rwf_t": Int32, "__u32": Uint32, "__s32": Int32, "time_t": Int64,
	"cap_user_header_t": PointerTo(nil), "cap_user_data_t": PointerTo(nil),
}

// Gathered are the types of aggregates: no variable is of one.
var Gathered = map[string]Kind{"count_t": Count, "sum_t": Sum, "avg_t": Avg, "min_t": Min, "max_t": Max,
	"stats_t": Stats, "hist_t": Hist, "lhist_t": LHist, "tseries_t": TSeries}
