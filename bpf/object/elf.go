// Package object makes eBPF objects such as the library that reads them understands them, and such
// as they are where there is no kernel.
package object

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// KconfigName is the section of what libbpf knows of the kernel that it loads for.
const KconfigName = ".kconfig"

// kconfigValues are the answers to programs that ask for the kernel's configuration: they are true
// for the place where the programs run. The version is one whose helpers are here.
var kconfigValues = map[string]uint64{
	"CONFIG_HZ":                 250, // of bpf_jiffies64
	"LINUX_HAS_BPF_COOKIE":      1,
	"LINUX_HAS_SYSCALL_WRAPPER": 1, // of x86-64
	"LINUX_KERNEL_VERSION":      6<<16 | 1<<8,
}

// Kconfig is the value of an object's .kconfig, nil where it has none. Of settings that are not
// known, weak ones are 0: so they are in a kernel that was made without them.
func Kconfig(types *btf.Spec, weak map[string]bool) ([]byte, error) {
	var section *btf.Datasec
	if types == nil || types.TypeByName(KconfigName, &section) != nil {
		return nil, nil
	}
	value := make([]byte, section.Size)
	for _, v := range section.Vars {
		name := v.Type.TypeName()
		known, ok := kconfigValues[name]
		if !ok && weak[name] {
			continue
		}
		if !ok || v.Size > 8 || uint64(v.Offset)+uint64(v.Size) > uint64(len(value)) {
			return nil, fmt.Errorf("bpf: the object asks for %s, a setting of the kernel that it would be loaded into: there is none here; make it a `const volatile` variable, and set that (--set)", name)
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], known)
		copy(value[v.Offset:v.Offset+v.Size], b[:])
	}
	return value, nil
}

// Readable is an object as the library that reads it understands it. The library has no weak maps,
// as usdt.bpf.h defines, nor weak settings. Nor does it tell which setting an instruction loads: so
// the setting's offset in the section is written into the instruction. The names of weak symbols
// are returned, too.
func Readable(r io.ReaderAt, types *btf.Spec) (_ io.ReaderAt, weak map[string]bool, err error) {
	object, err := io.ReadAll(io.NewSectionReader(r, 0, maxSection))
	if err != nil {
		return nil, nil, err
	}
	f, err := elf.NewFile(bytes.NewReader(object))
	if err != nil {
		return nil, nil, err
	}
	symbols, err := f.Symbols()
	if err != nil || f.ByteOrder != binary.LittleEndian || f.Class != elf.ELFCLASS64 {
		return r, nil, nil // the library has words for that
	}
	weak = map[string]bool{}
	table := f.SectionByType(elf.SHT_SYMTAB)
	for i, s := range symbols {
		kind := elf.ST_TYPE(s.Info)
		at := table.Offset + uint64(i+1)*elf.Sym64Size + 4
		if elf.ST_BIND(s.Info) == elf.STB_WEAK && kind != elf.STT_FUNC && at < uint64(len(object)) {
			object[at] = elf.ST_INFO(elf.STB_GLOBAL, kind)
			weak[s.Name] = true
		}
	}
	placeKconfig(f, object, symbols, types)
	return bytes.NewReader(object), weak, nil
}

// InsteadOf says what to do about an error of the library that reads objects; "" where that is not
// known.
func InsteadOf(err error) string {
	switch text := err.Error(); {
	case strings.Contains(text, "initializing BTF map definitions"):
		return ` (a map in SEC(".maps") is defined with __uint and __type of bpf_helpers.h; values, as of struct bpf_map_def, are for SEC("maps"))`
	case strings.Contains(text, ".ksyms"):
		return " (there is no kernel whose symbols the object could have: leave out what is __ksym)"
	}
	return ""
}

// placeKconfig writes into each load of a setting where in .kconfig that is.
func placeKconfig(f *elf.File, object []byte, symbols []elf.Symbol, types *btf.Spec) {
	var section *btf.Datasec
	if types == nil || types.TypeByName(KconfigName, &section) != nil {
		return
	}
	offsets := map[string]uint32{}
	for _, v := range section.Vars {
		offsets[v.Type.TypeName()] = v.Offset
	}
	for _, s := range f.Sections {
		if s.Type != elf.SHT_REL || int(s.Info) >= len(f.Sections) {
			continue
		}
		code := f.Sections[s.Info]
		relocations, err := s.Data()
		if err != nil || code.Flags&elf.SHF_EXECINSTR == 0 {
			continue
		}
		for ; len(relocations) >= 16; relocations = relocations[16:] {
			at, info := binary.LittleEndian.Uint64(relocations), binary.LittleEndian.Uint64(relocations[8:])
			n := int(info>>32) - 1
			if n < 0 || n >= len(symbols) || symbols[n].Section != elf.SHN_UNDEF {
				continue
			}
			offset, ok := offsets[symbols[n].Name]
			if upper := code.Offset + at + 12; ok && at < code.Size && upper+4 <= uint64(len(object)) {
				binary.LittleEndian.PutUint32(object[upper:], offset)
			}
		}
	}
}

// CheckSizes looks at the sections before memory is made for them: a damaged
// .bss may claim any size.
func CheckSizes(r io.ReaderAt) error {
	f, err := elf.NewFile(r)
	if err != nil {
		return err
	}
	for _, s := range f.Sections {
		if s.Size > maxSection {
			return fmt.Errorf("section %q of %d bytes: more than %d", s.Name, s.Size, maxSection)
		}
	}
	return nil
}

const maxSection = 64 << 20
