package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"

	"kprobe/arch"
)

// ErrNoTypes is returned, wrapped, where type information is needed that the
// kernel does not have: CONFIG_DEBUG_INFO_BTF is off.
var ErrNoTypes = errors.New("the kernel has no type information (BTF)")

// Types is a kernel's type information (BTF), or a module's on top of it.
type Types struct {
	spec *btf.Spec
	arch *arch.Arch
}

const maxBTF = 64 << 20 // of a distribution's kernel some 6 MB

// readTypes reads the BTF that the kernel carries between two symbols.
func (k *Kernel) readTypes() (*Types, error) {
	at, ok := k.table.between("__start_BTF", "__stop_BTF")
	if !ok {
		return nil, fmt.Errorf("%w, or no symbols of data (CONFIG_KALLSYMS_ALL)", ErrNoTypes)
	}
	v := k.view()
	b := v.array(at.Start, at.Size(), 1)
	if v.err != nil {
		return nil, fmt.Errorf("reading BTF: %w", v.err)
	}
	return parseTypes(b, nil, k.arch)
}

// parseTypes parses BTF; base has the types that a module's refer to.
func parseTypes(b []byte, base *Types, a *arch.Arch) (t *Types, err error) {
	if len(b) > maxBTF {
		return nil, fmt.Errorf("BTF of %d bytes", len(b))
	}
	t = &Types{arch: a}
	if base == nil {
		t.spec, err = btf.LoadSpecFromReader(bytes.NewReader(b))
	} else {
		t.spec, err = btf.LoadSplitSpecFromReader(bytes.NewReader(b), base.spec)
	}
	if err != nil {
		return nil, fmt.Errorf("damaged BTF: %w", err)
	}
	return t, nil
}

// Spec is the whole type information.
func (t *Types) Spec() *btf.Spec { return t.spec }

// Types is the kernel's type information. Where no symbols say where it is, it is
// searched for when it is first asked for, which means reading the whole image.
// Errors: ErrNoTypes.
func (k *Kernel) Types() (*Types, error) {
	if k.types != nil {
		return k.types, nil
	}
	k.search.Do(func() {
		if !k.HasData() {
			k.hidden = k.searchTypes()
		}
	})
	if k.hidden == nil {
		return nil, ErrNoTypes
	}
	return k.hidden, nil
}

// searchTypes looks for BTF behind the kernel's text, where its read-only data is.
// Modules have some too, and it may lie about elsewhere: the kernel's own tells
// of its tasks, and of the function that makes them.
func (k *Kernel) searchTypes() *Types {
	text, ok := k.table.between("_stext", "_etext")
	if !ok {
		return nil
	}
	const far = 64 << 20 // the read-only data of kernels with some 30 MB of text
	start := text.End &^ 7
	r := Piece{k.mem, arch.Range{Start: start, End: start + far}}
	magic := []byte{0, 0, 1, 0} // and the version, and no flags
	k.arch.Order.PutUint16(magic, 0xeb9f)
	buf := make([]byte, chunk)
	tries := 0
	for pos := int64(0); pos < r.Size(); pos += chunk {
		r.ReadAt(buf, pos)
		for i := 0; ; i++ {
			at := bytes.Index(buf[i:], magic)
			if at < 0 {
				break
			}
			i += at
			t, like := k.typesAt(start + arch.Addr(pos) + arch.Addr(i))
			if t != nil {
				return t
			}
			if like {
				if tries++; tries == maxTries { // a guest may have any number of them
					return nil
				}
			}
		}
	}
	return nil
}

// typesAt reads memory that looks like BTF: a header of 24 bytes, behind it the types, and behind
// them the names. like tells that the header is so, whether the rest is or not.
func (k *Kernel) typesAt(at arch.Addr) (t *Types, like bool) {
	const header = 24
	v := k.view()
	types, typesLen := v.u32(at+8), v.u32(at+12)
	names, namesLen := v.u32(at+16), v.u32(at+20)
	size := uint64(header) + uint64(names) + uint64(namesLen)
	if v.u32(at+4) != header || types != 0 || names != typesLen || size < 1<<18 || size > maxBTF {
		return nil, false
	}
	b := v.array(at, size, 1)
	if v.err != nil {
		return nil, true
	}
	t, err := parseTypes(b, nil, k.arch)
	if err != nil {
		return nil, true
	}
	if _, err := t.structure("task_struct"); err != nil {
		return nil, true
	}
	if _, err := t.function("wake_up_new_task"); err != nil {
		return nil, true
	}
	return t, true
}

// ModuleTypes is the type information of a module, which is the kernel's as well.
// Errors: ErrNoTypes.
func (k *Kernel) ModuleTypes(m *Module) (*Types, error) {
	// The module's own pointer to it is gone once it is loaded; the kernel's list for
	// /sys/kernel/btf is not.
	head, ok := k.table.Addr("btf_modules")
	var list, module, in, data, size int
	err := k.types.offsets("btf_module", map[string]*int{"list": &list, "module": &module, "btf": &in})
	if err == nil {
		err = k.types.offsets("btf", map[string]*int{"data": &data, "data_size": &size})
	}
	if !ok || err != nil {
		return nil, fmt.Errorf("module %s: %w", m.Name, ErrNoTypes)
	}
	v := k.view()
	var b []byte
	v.list(head, 2*k.arch.PtrSize, maxModules, func(entry arch.Addr, _ []byte) {
		if at := entry - arch.Addr(list); v.ptr(at+arch.Addr(module)) == m.at {
			kept := v.ptr(at + arch.Addr(in))
			b = v.array(v.ptr(kept+arch.Addr(data)), uint64(v.u32(kept+arch.Addr(size))), 1)
		}
	})
	if v.err != nil {
		return nil, fmt.Errorf("reading BTF of module %s: %w", m.Name, v.err)
	}
	if len(b) == 0 {
		return nil, fmt.Errorf("module %s: %w", m.Name, ErrNoTypes)
	}
	return parseTypes(b, k.types, k.arch)
}

// structure finds a struct by its tag, without "struct".
func (t *Types) structure(tag string) (*btf.Struct, error) {
	if t == nil {
		return nil, ErrNoTypes
	}
	var s *btf.Struct
	if err := t.spec.TypeByName(tag, &s); err != nil {
		return nil, fmt.Errorf("struct %s: %w", tag, err)
	}
	return s, nil
}

// field is the offset and size, in bytes, of a member of a struct: "list.next"
// is a member's member.
func (t *Types) field(tag, path string) (off, size int, err error) {
	s, err := t.structure(tag)
	if err != nil {
		return 0, 0, err
	}
	var at btf.Type = s
	for name := range strings.SplitSeq(path, ".") {
		m, bits, err := member(at, name)
		if err != nil {
			return 0, 0, fmt.Errorf("struct %s: %w", tag, err)
		}
		off += int(bits / 8)
		at = m.Type
	}
	size, err = btf.Sizeof(at)
	return off, size, err
}

// offsets is field for several members of which only the offsets are wanted.
func (t *Types) offsets(tag string, to map[string]*int) error {
	for path, p := range to {
		off, _, err := t.field(tag, path)
		if err != nil {
			return err
		}
		*p = off
	}
	return nil
}

// plain is a type without its names and qualifiers: no typedef, const and so on.
func plain(t btf.Type) btf.Type {
	for range 64 { // damaged BTF may go in circles
		switch u := t.(type) {
		case *btf.Typedef:
			t = u.Type
		case *btf.Const:
			t = u.Type
		case *btf.Volatile:
			t = u.Type
		case *btf.Restrict:
			t = u.Type
		case *btf.TypeTag:
			t = u.Type
		default:
			return t
		}
	}
	return &btf.Void{}
}

// member finds a member of a struct or union, also inside of members that have
// no name, and its offset in bits.
func member(t btf.Type, name string) (*btf.Member, btf.Bits, error) {
	if m, off, ok := findMember(t, name, 0); ok {
		return m, off, nil
	}
	return nil, 0, fmt.Errorf("no member %s", name)
}

func findMember(t btf.Type, name string, depth int) (*btf.Member, btf.Bits, bool) {
	var members []btf.Member
	switch u := plain(t).(type) {
	case *btf.Struct:
		members = u.Members
	case *btf.Union:
		members = u.Members
	}
	for i := range members {
		m := &members[i]
		if m.Name == name {
			return m, m.Offset, true
		}
		if m.Name == "" && depth < 16 {
			if found, off, ok := findMember(m.Type, name, depth+1); ok {
				return found, m.Offset + off, true
			}
		}
	}
	return nil, 0, false
}
