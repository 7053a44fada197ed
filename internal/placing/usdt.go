package placing

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"syscall"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/errno"
	"kprobe/symbol"
)

// Programs for static probes (USDT) include libbpf's <bpf/usdt.bpf.h>, whose code looks up in
// a map where each argument is: this is that map's value. Which of its elements is a probe's,
// its cookie says.
const (
	// UsdtSpecs is its name.
	UsdtSpecs = "__bpf_usdt_specs"

	usdtMaxArgs = 12
	usdtArgSize = 16
	usdtCount   = usdtMaxArgs*usdtArgSize + 8 // 2 bytes: how many arguments there are; before it the user's cookie
	usdtUsed    = usdtCount + 2               // of the padding, ours: the element has a description

	// An argument: its constant or offset, then these.
	usdtKind   = 8  // 1 byte
	usdtIndex  = 9  // 2 bytes: the index's register, and above 12 bits the scale, as a shift
	usdtReg    = 12 // 2 bytes: the register, an offset in pt_regs
	usdtSigned = 14
	usdtShift  = 15 // bits of 64 that are no part of it

	usdtConst, usdtRegister, usdtMemory, usdtScaled = 0, 1, 2, 3
)

// isStatic tells whether a place names a static probe, where it could be a function of a name with colons.
func (f *Finder) isStatic(place string) bool {
	parts := strings.Split(place, ":")
	n := len(parts)
	if n < 3 {
		return false
	}
	for _, m := range f.Space.ModulesNamed(strings.Join(parts[:n-2], ":")) {
		if m.File != nil && slices.ContainsFunc(m.File.StaticProbes(), func(sp symbol.StaticProbe) bool {
			return sp.Provider == parts[n-2] && sp.Name == parts[n-1]
		}) {
			return true
		}
	}
	return false
}

// static are the static probes that PATH:PROVIDER:NAME means.
func (f *Finder) static(p *bpf.Program, place string) (spots []Spot, err error) {
	parts := strings.Split(place, ":")
	if len(parts) < 3 {
		return nil, errno.New(syscall.EINVAL, "%q is no static probe: PATH:PROVIDER:NAME", place)
	}
	n := len(parts)
	path, provider, name := strings.Join(parts[:n-2], ":"), parts[n-2], parts[n-1]
	modules := f.Space.ModulesNamed(path)
	if len(modules) == 0 {
		return nil, errno.New(syscall.ENOENT, "static probe %s:%s: %s is not mapped; a program cannot wait for it", provider, name, path)
	}
	for _, m := range modules {
		if m.File == nil {
			continue
		}
		for _, sp := range m.File.StaticProbes() {
			if sp.Provider != provider || sp.Name != name {
				continue
			}
			cookie, err := f.describe(sp.Args, p.Scales)
			if err != nil {
				return nil, fmt.Errorf("static probe %s:%s: %w", provider, name, err)
			}
			spots = append(spots, Spot{Addr: arch.Addr(sp.Vaddr + m.Bias), Cookie: cookie})
			if at := arch.Addr(sp.Semaphore + m.Bias); sp.Semaphore != 0 && !slices.Contains(f.Semaphores, at) {
				f.Semaphores = append(f.Semaphores, at)
			}
		}
	}
	if len(spots) == 0 {
		return nil, errno.New(syscall.ENOENT, "%s has no static probe %s:%s (readelf -n lists them)", path, provider, name)
	}
	return spots, nil
}

// describe puts where arguments are into the map that programs ask, unless it is there, and answers
// which element that is. Programs that ask for none have no such map.
func (f *Finder) describe(text string, scales bool) (cookie uint64, err error) {
	m := f.Specs
	if m == nil {
		return 0, nil
	}
	args, ok := symbol.StaticArgs(text)
	if len(args) > usdtMaxArgs {
		return 0, errno.New(syscall.ENOTSUP, "%d arguments, more than %d", len(args), usdtMaxArgs)
	}
	if !ok {
		f.Warn(errno.New(syscall.ENOTSUP, "argument %d of %q is in no general register nor in memory by one: programs get an error for it and those behind", len(args), text))
	}
	if m.Spec.ValueSize < usdtCount+2 {
		return 0, errno.New(syscall.ENOTSUP, "map %s has values of %d bytes, of no usdt.bpf.h that is known", UsdtSpecs, m.Spec.ValueSize)
	}
	value := make([]byte, m.Spec.ValueSize)
	for i, a := range args {
		if err := placeStatic(value[usdtArgSize*i:], a, scales); err != nil {
			return 0, err
		}
	}
	binary.LittleEndian.PutUint16(value[usdtCount:], uint16(len(args)))
	value[usdtUsed] = 1
	for n := range m.Spec.MaxEntries {
		key := binary.LittleEndian.AppendUint32(nil, n)
		switch have, err := m.Lookup(key); {
		case err != nil:
			return 0, err
		case bytes.Equal(have, value):
			return uint64(n), nil
		case have[usdtUsed] == 0:
			return uint64(n), m.Update(key, value, bpf.UpdateAny)
		}
	}
	return 0, errno.New(syscall.ENOSPC, "more than %d kinds of arguments: give map %s more (--entries)", m.Spec.MaxEntries, UsdtSpecs)
}

// placeStatic writes where one argument is. scales tells whether the program's code knows indexes.
func placeStatic(to []byte, a symbol.StaticArg, scales bool) error {
	register := func(name string) uint16 { return uint16(8 * slices.Index(bpf.AMD64.Regs, name)) }
	switch {
	case a.Index != "":
		if !scales {
			return errno.New(syscall.ENOTSUP, "an argument is in memory by an index: the program's usdt.bpf.h is older than that; take a newer one")
		}
		to[usdtKind] = usdtScaled
		binary.LittleEndian.PutUint16(to[usdtIndex:], register(a.Index)|uint16(bits.TrailingZeros(uint(a.Scale)))<<12)
	case a.Memory:
		to[usdtKind] = usdtMemory
	case a.Base != "":
		to[usdtKind] = usdtRegister
	default:
		to[usdtKind] = usdtConst
	}
	binary.LittleEndian.PutUint64(to, uint64(a.Value))
	if a.Base != "" {
		binary.LittleEndian.PutUint16(to[usdtReg:], register(a.Base))
	}
	if a.Signed {
		to[usdtSigned] = 1
	}
	to[usdtShift] = byte(64 - 8*a.Size)
	return nil
}
