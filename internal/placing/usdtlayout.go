package placing

import (
	"fmt"
	"syscall"

	"github.com/cilium/ebpf/btf"

	"kprobe/bpf"
	"kprobe/internal/errno"
)

// usdtLayout is where the value of a specs map has what. usdt.bpf.h is compiled into the program, and its structs are not
// the same in all ages of libbpf, so the object itself is asked (by the map's BTF) and nothing is taken for granted.
type usdtLayout struct {
	most  int       // arguments
	first uint      // the bit at which they begin
	next  uint      // bits from one to the next
	count usdtField // of the value
	free  int       // a byte of the value that has no field: it is ours

	// Of an argument.
	value, kind, register, signed, shift usdtField
	index, scale                         usdtField // no bits: it knows no index

	kinds map[string]uint64 // of arguments
}

// The kinds of arguments, as usdt.bpf.h calls them.
const (
	usdtConst    = "BPF_USDT_ARG_CONST"
	usdtRegister = "BPF_USDT_ARG_REG"
	usdtMemory   = "BPF_USDT_ARG_REG_DEREF"
	usdtScaled   = "BPF_USDT_ARG_SIB"
)

// usdtNoKind is a number of none, for what cannot be read: the program gets an error for it.
const usdtNoKind = ^uint64(0)

// usdtField is one of a value's, in bits.
type usdtField struct{ at, bits uint }

// put writes a field of what begins at a bit, whose bytes are little-endian.
func (f usdtField) put(to []byte, base uint, v uint64) {
	for i := range f.bits {
		at := base + f.at + i
		to[at/8] &^= 1 << (at % 8)
		to[at/8] |= byte(v>>i&1) << (at % 8)
	}
}

// layoutOf reads a specs map's types. Errors: ENOTSUP, it is of no usdt.bpf.h that is known.
func layoutOf(m *bpf.MapSpec) (l *usdtLayout, err error) {
	refuse := func(why string) (*usdtLayout, error) {
		return nil, errno.New(syscall.ENOTSUP, "map %s is of no usdt.bpf.h that is known: %s", UsdtSpecs, why)
	}
	if m.Value == nil {
		return refuse("the object tells no type of its values")
	}
	spec, ok := btf.UnderlyingType(m.Value).(*btf.Struct)
	if !ok || spec.Size != m.ValueSize {
		return refuse(fmt.Sprintf("its values of %d bytes are %v", m.ValueSize, m.Value))
	}
	args, end := fieldsOf(spec)
	array, ok := args["args"].of.(*btf.Array)
	if !ok || args["arg_cnt"].bits == 0 {
		return refuse("its values have no args, or no arg_cnt")
	}
	one, ok := btf.UnderlyingType(array.Type).(*btf.Struct)
	if !ok {
		return refuse("an argument is no struct")
	}
	fields, _ := fieldsOf(one)
	l = &usdtLayout{
		most: int(array.Nelems), first: args["args"].at, next: 8 * uint(one.Size), count: args["arg_cnt"].usdtField, free: int(end+7) / 8,
		index: fields["idx_reg_off"].usdtField, scale: fields["scale_bitshift"].usdtField,
		kinds: map[string]uint64{usdtConst: 0, usdtRegister: 1, usdtMemory: 2, usdtScaled: 3},
	}
	if named, ok := fields["arg_type"].of.(*btf.Enum); ok {
		clear(l.kinds)
		for _, v := range named.Values {
			l.kinds[v.Name] = v.Value
		}
	}
	for name, f := range map[string]struct {
		to   *usdtField
		bits uint // at least
	}{
		"val_off": {&l.value, 64}, "arg_type": {&l.kind, 3}, "reg_off": {&l.register, 8}, "arg_signed": {&l.signed, 1}, "arg_bitshift": {&l.shift, 6},
	} {
		if *f.to = fields[name].usdtField; f.to.bits < f.bits {
			return refuse(fmt.Sprintf("an argument's %s has %d bits", name, f.to.bits))
		}
	}
	if l.free >= int(m.ValueSize) {
		return refuse("its values have no room for a mark of ours")
	}
	return l, nil
}

// typedField is a field and its type.
type typedField struct {
	usdtField
	of btf.Type
}

// fieldsOf lists a struct's members, and tells where the last one ends.
func fieldsOf(s *btf.Struct) (fields map[string]typedField, end uint) {
	fields = make(map[string]typedField)
	for _, m := range s.Members {
		bits := uint(m.BitfieldSize)
		if bits == 0 {
			size, err := btf.Sizeof(m.Type)
			if err != nil {
				continue
			}
			bits = 8 * uint(size)
		}
		f := typedField{usdtField{uint(m.Offset), bits}, btf.UnderlyingType(m.Type)}
		fields[m.Name] = f
		end = max(end, f.at+f.bits)
	}
	return fields, end
}
