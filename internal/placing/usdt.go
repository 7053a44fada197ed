package placing

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"syscall"

	"kprobe/bpf"
	"kprobe/internal/errno"
	"kprobe/symbol"
)

// Programs for static probes (USDT) include libbpf's <bpf/usdt.bpf.h>, whose code looks up in
// a map where each argument is: this is that map's value. Which of its elements is a probe's,
// its cookie says.
//
// UsdtSpecs is its name.
const UsdtSpecs = "__bpf_usdt_specs"

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
func (f *Finder) static(place string) (spots []Spot, err error) {
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
			cookie, err := f.describe(m.File.StaticArgs(&sp))
			if err != nil {
				return nil, fmt.Errorf("static probe %s:%s: %w", provider, name, err)
			}
			spots = append(spots, Spot{Addr: m.InProcess(sp.Vaddr), Cookie: cookie})
			if at := m.InProcess(sp.Semaphore); sp.Semaphore != 0 && !slices.Contains(f.Semaphores, at) {
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
func (f *Finder) describe(args []symbol.StaticArg) (cookie uint64, err error) {
	m := f.Specs
	if m == nil {
		return 0, nil
	}
	l, err := layoutOf(m.Spec)
	if err != nil {
		return 0, err
	}
	if len(args) > l.most {
		return 0, errno.New(syscall.ENOTSUP, "%d arguments, more than %d", len(args), l.most)
	}
	value := make([]byte, m.Spec.ValueSize)
	for i, a := range args {
		if a.Unread != "" {
			f.Warn(errno.New(syscall.ENOTSUP, "programs get an error for argument %d, %s", i, a.Unread))
		}
		if err := l.place(value, i, a); err != nil {
			return 0, err
		}
	}
	l.count.put(value, 0, uint64(len(args)))
	value[l.free] = 1
	for n := range m.Spec.MaxEntries {
		key := binary.LittleEndian.AppendUint32(nil, n)
		switch have, err := m.Lookup(key); {
		case err != nil:
			return 0, err
		case bytes.Equal(have, value):
			return uint64(n), nil
		case have[l.free] == 0:
			return uint64(n), m.Update(key, value, bpf.UpdateAny)
		}
	}
	return 0, errno.New(syscall.ENOSPC, "more than %d kinds of arguments: give map %s more (--entries)", m.Spec.MaxEntries, UsdtSpecs)
}

// place writes where argument i is.
func (l *usdtLayout) place(value []byte, i int, a symbol.StaticArg) error {
	put := func(f usdtField, v uint64) { f.put(value, l.first+uint(i)*l.next, v) }
	register := func(name string) uint64 { return uint64(8 * slices.Index(bpf.AMD64.Regs, name)) }
	kind := usdtConst
	switch {
	case a.Unread != "":
		put(l.kind, usdtNoKind)
		return nil
	case a.Index != "":
		if l.index.bits < 8 || l.scale.bits < 2 {
			return errno.New(syscall.ENOTSUP, "an argument is in memory by an index: the program's usdt.bpf.h is older than that; take a newer one")
		}
		kind = usdtScaled
		put(l.index, register(a.Index))
		put(l.scale, uint64(bits.TrailingZeros(uint(a.Scale))))
	case a.Memory:
		kind = usdtMemory
	case a.Base != "":
		kind = usdtRegister
	}
	number, ok := l.kinds[kind]
	if !ok {
		return errno.New(syscall.ENOTSUP, "the program's usdt.bpf.h knows no %s", kind)
	}
	put(l.kind, number)
	put(l.value, uint64(a.Value))
	if a.Base != "" {
		put(l.register, register(a.Base))
	}
	if a.Signed {
		put(l.signed, 1)
	}
	put(l.shift, uint64(64-8*a.Size))
	return nil
}
