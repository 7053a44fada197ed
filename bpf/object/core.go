package object

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Relocate applies CO-RE relocations, in place: the fields of struct pt_regs, whose words are named, and of what
// is among the target's types, nil for none.
func Relocate(insns asm.Instructions, words []string, target *Types) error {
	var relos []*btf.CORERelocation
	var at []*asm.Instruction
	for i := range insns {
		if r := btf.CORERelocationMetadata(&insns[i]); r != nil {
			relos, at = append(relos, r), append(at, &insns[i])
		}
	}
	if len(relos) == 0 {
		return nil
	}
	known, err := specOf(relos, words, target)
	if err != nil {
		return err
	}
	fixups, err := btf.CORERelocate(relos, []*btf.Spec{known}, binary.LittleEndian, func(btf.Type) (btf.TypeID, error) {
		return 0, errors.New("CO-RE: identities of types are not supported")
	})
	if err != nil {
		return err
	}
	for i := range fixups {
		if err := fixups[i].Apply(at[i]); err != nil {
			return fmt.Errorf("%v: %w", relos[i], err)
		}
		if at[i].IsBuiltinCall() && at[i].Constant == btf.COREBadRelocationSentinel {
			return fmt.Errorf("it asks where the fields of %s are (CO-RE): those of struct pt_regs are known, and those that the target's debug information has (the process's own program; --types FILE names other files). A process has no structures of a kernel (vmlinux.h)", named(relos[i]))
		}
	}
	return nil
}

var namedType = regexp.MustCompile(`(\w+):"([^"]+)"`)

// named is the type that a relocation is about, as C has it. The library tells it in a text only.
func named(r *btf.CORERelocation) string {
	if m := namedType.FindStringSubmatch(r.String()); m != nil {
		return strings.ToLower(m[1]) + " " + m[2]
	}
	return r.String()
}

// specOf has the types that relocations ask for, as far as they are known.
func specOf(relos []*btf.CORERelocation, words []string, target *Types) (*btf.Spec, error) {
	all := []btf.Type{ptRegs(words, true), ptRegs(words, false)}
	asked := map[string]bool{"pt_regs": true}
	for _, r := range relos {
		m := namedType.FindStringSubmatch(r.String())
		if m == nil {
			continue
		}
		name, _, _ := strings.Cut(m[2], "___") // a flavor of it
		if asked[name] {
			continue
		}
		asked[name] = true
		found, err := target.Named(name)
		if err != nil {
			return nil, fmt.Errorf("the target's types: %w", err)
		}
		all = append(all, found...)
	}
	b, err := btf.NewBuilder(all, nil)
	if err != nil {
		return nil, err
	}
	return b.Spec()
}

// ptRegs is what the context looks like to the kernel's own headers, whose names
// have no r in front, or to those for users.
func ptRegs(words []string, kernel bool) btf.Type {
	long := &btf.Int{Name: "unsigned long", Size: 8}
	regs := &btf.Struct{Name: "pt_regs", Size: uint32(8 * len(words))}
	for i, name := range words {
		switch {
		case !kernel:
		case name == "orig_rax":
			name = "orig_ax"
		case name == "eflags":
			name = "flags"
		case name[1] >= '0' && name[1] <= '9': // r8 to r15
		default:
			name = strings.TrimPrefix(name, "r")
		}
		regs.Members = append(regs.Members, btf.Member{Name: name, Type: long, Offset: btf.Bits(64 * i)})
	}
	return regs
}
