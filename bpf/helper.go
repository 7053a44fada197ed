package bpf

import (
	"strings"
	"unicode"

	"github.com/cilium/ebpf/asm"
)

// Helper is a function that programs may call by its number, the kernel's (enum
// bpf_func_id).
type Helper struct {
	ID   int32
	Name string // "map_lookup_elem"
	Args []Arg
	Ret  Ret
}

// Arg is the kind of an argument of a helper.
type Arg uint8

const (
	ArgAny      Arg = iota // a number
	ArgCtx                 // the program's context
	ArgMap                 // a map that the helper can work on
	ArgKey                 // readable memory of the map's key size
	ArgValue               // readable memory of the map's value size
	ArgMem                 // readable memory; the next argument is its size
	ArgMemOut              // memory that the helper fills; the next argument is its size
	ArgSize                // a size, 1 or more
	ArgSize0               // a size, 0 or more
	ArgConst               // a number that is known: the size of a record
	ArgRecord              // a record of ringbuf_reserve
	ArgAddr                // an address of the target, whatever is there
	ArgWords               // as ArgMem: numbers of 8 bytes, which may be addresses of anything
	ArgPosition            // 8 bytes that say how far a walk has come, 0 at first
	ArgKeyOut              // memory of the map's key size that the helper fills
	ArgMaybe               // a number, or nothing was put there: see HelperCall.Set
)

// Decides tells whether the argument's number matters to the proof: states that
// differ in it are not the same, and HelperCall may say what it is.
func (a Arg) Decides() bool { return a != ArgAddr && a != ArgMaybe }

// Ret is the kind of a helper's result.
type Ret uint8

const (
	RetNumber  Ret = iota
	RetValue       // the address of a map's value, or NULL
	RetRecord      // the address of a reserved record, or NULL
	RetData        // the address of the call's private data
	RetNothing     // R0 is as unreadable as R1 to R5
)

// Errors that helpers answer, negative in R0.
const (
	ENOENT = 2
	E2BIG  = 7
	EAGAIN = 11
	EFAULT = 14
	EBUSY  = 16
	EEXIST = 17
	EINVAL = 22
	ENOSPC = 28
	ERANGE = 34
	ENOSYS = 38
)

// Flags of map_update_elem.
const (
	UpdateAny     = 0
	UpdateNoExist = 1
	UpdateExist   = 2
)

// Numbers of the helpers that are there.
const (
	FnMapLookupElem      = 1
	FnMapUpdateElem      = 2
	FnMapDeleteElem      = 3
	FnProbeRead          = 4
	FnKtimeGetNs         = 5
	FnTracePrintk        = 6
	FnGetPrandomU32      = 7
	FnGetSmpProcessorID  = 8
	FnGetCurrentPidTgid  = 14
	FnGetCurrentUidGid   = 15
	FnGetCurrentComm     = 16
	FnPerfEventOutput    = 25
	FnGetStackid         = 27
	FnGetCurrentTask     = 35
	FnProbeWriteUser     = 36
	FnProbeReadStr       = 45
	FnOverrideReturn     = 58
	FnProbeReadUser      = 112
	FnProbeReadKernel    = 113
	FnProbeReadUserStr   = 114
	FnProbeReadKernelStr = 115
	FnKtimeGetBootNs     = 125
	FnRingbufOutput      = 130
	FnRingbufReserve     = 131
	FnRingbufSubmit      = 132
	FnRingbufDiscard     = 133
	FnKtimeGetCoarseNs   = 160
	FnGetFuncIP          = 173
	FnGetAttachCookie    = 174
	FnTraceVprintk       = 177

	// Not the kernel's.
	FnCallData = 0x6b70
	FnCallWord = 0x6b73
	FnVector   = 0x6b74
	FnMapNext  = 0x6b71
	FnMapWalk  = 0x6b72
)

// MaxCallData is the most private data that a call can have, in bytes.
const MaxCallData = 4096

// Helpers has every helper by number. What they do, in order of their numbers:
//
//	map_lookup_elem(map, key)                 address of the value, or NULL
//	map_update_elem(map, key, value, flags)   0, -ENOENT, -EEXIST, -E2BIG, -EBUSY, -EINVAL
//	map_delete_elem(map, key)                 0, -ENOENT, -EBUSY; -EINVAL for an array
//	probe_read*(dst, size, addr)              0; -EFAULT, dst then all zeros (_user and _kernel are the same)
//	ktime_get_ns() and the other clocks       nanoseconds of CLOCK_MONOTONIC, _BOOTTIME, _MONOTONIC_COARSE
//	trace_printk(fmt, size, a, b, c)          bytes of fmt; writes a Printk record, with the texts of %s
//	get_prandom_u32()                         32 random bits
//	get_smp_processor_id()                    the CPU
//	get_current_pid_tgid()                    tgid << 32 | tid
//	get_current_uid_gid()                     gid << 32 | uid
//	get_current_comm(dst, size)               0; the thread's name, cut to size with its NUL, the rest zeros
//	perf_event_output(ctx, map, flags, data, size)
//	                                          0, -ENOSPC; flags low 32 bits: any CPU, high: 0 else -EINVAL
//	get_stackid(ctx, map, flags)              id, -EFAULT, -EEXIST, -EBUSY, -EINVAL
//	get_current_task()                        the kernel's address of the task that the CPU runs; of kernels alone
//	probe_write_user(addr, src, size)         0; -EFAULT, and some may be written. Needs Program.Writes
//	probe_read*_str(dst, size, addr)          bytes with the NUL; -EFAULT, dst then all zeros. Others stay
//	override_return(ctx, value)               0; the probed function returns value at once; not in a kretprobe
//	ringbuf_output(map, data, size, flags)    0, -EAGAIN; -E2BIG where it could never fit. Flags are ignored
//	ringbuf_reserve(map, size, flags)         address of size bytes, or NULL
//	ringbuf_submit(record, flags), ringbuf_discard(record, flags)   nothing
//	get_func_ip(ctx)                          address of the probed function (kprobe: of the probe)
//	get_attach_cookie(ctx)                    the number that was given at attaching
//	trace_vprintk(fmt, size, values, bytes)   the same, of up to 12 values
//	call_data(ctx, size)                      address of size bytes that belong to this one call of the probed function
//	call_word()                               the same of 8 bytes; what bpf_session_cookie becomes
//
//	vector(n)                                 8 bytes of a vector register of x86-64's processes: from
//	                                          1 on the lower and the upper half of each
//	map_next(map, key, size, from)            the key of the next element of a hash from number from on,
//	                                          and that number plus 1; 0 at the end
//	map_walk(map, position, key)              address of the next element's value, its key in key; NULL at the end
//
// The last five are ours alone; map_next is for programs of kind Controller, and begins with from
// 0. A walk over a map sees elements that are there all the time; it may see those that come or go
// meanwhile. A return probe's program at the entry and the one at the return get the same bytes,
// all zeros at the entry, whatever other calls are under way. In C:
//
//	static void *(*kprobe_call_data)(void *ctx, unsigned long size) = (void *)0x6b70;
//
// R1 to R5 are unreadable after a call: nothing may rely on their content.
var Helpers = map[int32]*Helper{}

func init() {
	for _, h := range []Helper{
		{FnMapLookupElem, "map_lookup_elem", []Arg{ArgMap, ArgKey}, RetValue},
		{FnMapUpdateElem, "map_update_elem", []Arg{ArgMap, ArgKey, ArgValue, ArgAny}, RetNumber},
		{FnMapDeleteElem, "map_delete_elem", []Arg{ArgMap, ArgKey}, RetNumber},
		{FnProbeRead, "probe_read", []Arg{ArgMemOut, ArgSize0, ArgAddr}, RetNumber},
		{FnKtimeGetNs, "ktime_get_ns", nil, RetNumber},
		{FnTracePrintk, "trace_printk", []Arg{ArgMem, ArgSize, ArgMaybe, ArgMaybe, ArgMaybe}, RetNumber},
		{FnGetPrandomU32, "get_prandom_u32", nil, RetNumber},
		{FnGetSmpProcessorID, "get_smp_processor_id", nil, RetNumber},
		{FnGetCurrentPidTgid, "get_current_pid_tgid", nil, RetNumber},
		{FnGetCurrentUidGid, "get_current_uid_gid", nil, RetNumber},
		{FnGetCurrentComm, "get_current_comm", []Arg{ArgMemOut, ArgSize}, RetNumber},
		{FnPerfEventOutput, "perf_event_output", []Arg{ArgCtx, ArgMap, ArgAny, ArgMem, ArgSize0}, RetNumber},
		{FnGetStackid, "get_stackid", []Arg{ArgCtx, ArgMap, ArgAny}, RetNumber},
		{FnGetCurrentTask, "get_current_task", nil, RetNumber},
		{FnProbeWriteUser, "probe_write_user", []Arg{ArgAddr, ArgMem, ArgSize0}, RetNumber},
		{FnProbeReadStr, "probe_read_str", []Arg{ArgMemOut, ArgSize0, ArgAddr}, RetNumber},
		{FnOverrideReturn, "override_return", []Arg{ArgCtx, ArgAny}, RetNumber},
		{FnProbeReadUser, "probe_read_user", []Arg{ArgMemOut, ArgSize0, ArgAddr}, RetNumber},
		{FnProbeReadKernel, "probe_read_kernel", []Arg{ArgMemOut, ArgSize0, ArgAddr}, RetNumber},
		{FnProbeReadUserStr, "probe_read_user_str", []Arg{ArgMemOut, ArgSize0, ArgAddr}, RetNumber},
		{FnProbeReadKernelStr, "probe_read_kernel_str", []Arg{ArgMemOut, ArgSize0, ArgAddr}, RetNumber},
		{FnKtimeGetBootNs, "ktime_get_boot_ns", nil, RetNumber},
		{FnRingbufOutput, "ringbuf_output", []Arg{ArgMap, ArgMem, ArgSize0, ArgAny}, RetNumber},
		{FnRingbufReserve, "ringbuf_reserve", []Arg{ArgMap, ArgConst, ArgAny}, RetRecord},
		{FnRingbufSubmit, "ringbuf_submit", []Arg{ArgRecord, ArgAny}, RetNothing},
		{FnRingbufDiscard, "ringbuf_discard", []Arg{ArgRecord, ArgAny}, RetNothing},
		{FnKtimeGetCoarseNs, "ktime_get_coarse_ns", nil, RetNumber},
		{FnGetFuncIP, "get_func_ip", []Arg{ArgCtx}, RetNumber},
		{FnGetAttachCookie, "get_attach_cookie", []Arg{ArgCtx}, RetNumber},
		{FnTraceVprintk, "trace_vprintk", []Arg{ArgMem, ArgSize, ArgWords, ArgSize0}, RetNumber},
		{FnMapWalk, "map_walk", []Arg{ArgMap, ArgPosition, ArgKeyOut}, RetValue},
		{FnCallData, "call_data", []Arg{ArgCtx, ArgConst}, RetData},
		{FnCallWord, "call_word", nil, RetData},
		{FnVector, "vector", []Arg{ArgConst}, RetNumber},
		{FnMapNext, "map_next", []Arg{ArgMap, ArgMemOut, ArgSize, ArgAny}, RetNumber},
	} {
		Helpers[h.ID] = &h
	}
}

// RefuseHelper says what to do in place of a call of a helper that is not among Helpers. The error
// is a *VerifyError.
func (p *Program) RefuseHelper(slot int, id int32) error {
	if lack := p.known.Lacks(id); lack != "" {
		err := p.Refuse(slot, "%s", lack).(*VerifyError)
		err.Insn, err.Lacks = "of what is not here", true
		return err
	}
	name := HelperName(id)
	if strings.ContainsRune(name, '(') {
		return p.Refuse(slot, "helper %d is none of the kernel's: another runtime's own, perhaps; leave the call out, or the program (--without %s)", id, p.Name)
	}
	return p.Refuse(slot, "helper %d (%s) is not supported here%s", id, name, instead[id])
}

// mayNot ends the messages about helpers that have to be allowed first.
const mayNot = " unless it is allowed: --unsafe does (Collection."

// instead says what to do in place of some helpers.
var instead = map[int32]string{
	FnProbeWriteUser: mayNot + "AllowWrites)",
	37:               ": leave the object's filter by control groups off; a process is in one anyway",           // current_task_under_cgroup
	109:              mayNot + "AllowSignals)",                                                                  // send_signal
	117:              mayNot + "AllowSignals)",                                                                  // send_signal_thread
	80:               ": a process's control group is in /proc/PID/cgroup; compare it outside",                  // get_current_cgroup_id
	93:               ": count with __sync_fetch_and_add, or in a per-CPU map",                                  // spin_lock
	134:              ": who reads a ring is told what was lost",                                                // ringbuf_query
	169:              ": who reads the maps may do so by his own clock",                                         // timer_init
	195:              ": a program reaches its own thread's value, bpf_map_lookup_elem; who reads the map, all", // map_lookup_percpu_elem
	198:              ": reserve a record of a size that is known, with bpf_ringbuf_reserve",                    // ringbuf_reserve_dynptr
	208:              ": take bpf_ktime_get_ns, and what lies between the clocks from outside",                  // ktime_get_tai_ns
}

// HelperName is the kernel's name of any helper, ours or not.
func HelperName(id int32) string {
	var name strings.Builder
	for i, r := range strings.TrimPrefix(asm.BuiltinFunc(id).String(), "Fn") {
		if unicode.IsUpper(r) && i > 0 {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToLower(r))
	}
	return "bpf_" + name.String()
}
