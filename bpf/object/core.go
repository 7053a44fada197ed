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

// Relocate applies CO-RE relocations, in place: the fields of struct pt_regs, whose words are named.
func Relocate(insns asm.Instructions, words []string) error {
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
	target, err := ptRegs(words)
	if err != nil {
		return err
	}
	fixups, err := btf.CORERelocate(relos, []*btf.Spec{target}, binary.LittleEndian, func(btf.Type) (btf.TypeID, error) {
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
			return fmt.Errorf("it asks where the fields of %s are (CO-RE): those of struct pt_regs are known, and no others. A process has no structures of a kernel (vmlinux.h); one of the program's own is to be defined as the program does, without preserve_access_index, and read with bpf_probe_read_user", named(relos[i]))
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

// ptRegs is what the context looks like to the kernel's own headers, whose names
// have no r in front.
func ptRegs(words []string) (*btf.Spec, error) {
	long := &btf.Int{Name: "unsigned long", Size: 8}
	regs := &btf.Struct{Name: "pt_regs", Size: uint32(8 * len(words))}
	for i, name := range words {
		switch name {
		case "orig_rax":
			name = "orig_ax"
		case "eflags":
			name = "flags"
		case "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15":
		default:
			name = strings.TrimPrefix(name, "r")
		}
		regs.Members = append(regs.Members, btf.Member{Name: name, Type: long, Offset: btf.Bits(64 * i)})
	}
	b, err := btf.NewBuilder([]btf.Type{regs}, nil)
	if err != nil {
		return nil, err
	}
	return b.Spec()
}
