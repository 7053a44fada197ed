package object

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Missing is the first of the numbers that no helper has: a call of one stands where a program uses
// a thing that is not here. See Types.Lacks.
const Missing = 0xbad3000

// Relocate applies CO-RE relocations, in insns too: of the fields of struct pt_regs, whose words
// are named, and of the target's types. A program that asks whether there is something, and is told
// no, may have code that uses it, as long as no path comes there. A program that does not ask is
// refused.
func Relocate(insns asm.Instructions, words []string, target *Types) (asm.Instructions, error) {
	var relos []*btf.CORERelocation
	var at []*asm.Instruction
	for i := range insns {
		if r := btf.CORERelocationMetadata(&insns[i]); r != nil {
			relos, at = append(relos, r), append(at, &insns[i])
		}
	}
	if len(relos) == 0 {
		return insns, nil
	}
	known, err := specOf(relos, words, target)
	if err != nil {
		return nil, err
	}
	fixups, err := btf.CORERelocate(relos, []*btf.Spec{known}, binary.LittleEndian, func(btf.Type) (btf.TypeID, error) {
		return 0, errors.New("CO-RE: identities of types are not supported")
	})
	if err != nil {
		return nil, err
	}
	asks := slices.ContainsFunc(relos, func(r *btf.CORERelocation) bool { return question.MatchString(r.String()) })
	wide := map[*asm.Instruction]bool{} // calls in place of instructions of two slots
	for i := range fixups {
		two, about := at[i].OpCode.IsDWordLoad(), at[i].Metadata
		if err := fixups[i].Apply(at[i]); err != nil {
			return nil, fmt.Errorf("%v: %w", relos[i], err)
		}
		if at[i].Constant != btf.COREBadRelocationSentinel || !at[i].IsBuiltinCall() && at[i].Dst != asm.R10 {
			continue
		}
		if !asks {
			return nil, errors.New(lacking(named(relos[i])))
		}
		*at[i] = asm.BuiltinFunc(target.Lack(lacking(named(relos[i])))).Call()
		at[i].Metadata = about // its line, and what begins there
		wide[at[i]] = two
	}
	var all asm.Instructions
	for i := range insns {
		all = append(all, insns[i])
		if wide[&insns[i]] {
			all = append(all, asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)})
		}
	}
	return all, nil
}

// question is a relocation that asks whether there is something.
var question = regexp.MustCompile(`\b\w*exists\b`)

func lacking(what string) string {
	return fmt.Sprintf("it asks where the fields of %s are (CO-RE): those of struct pt_regs are known, and those that the target's debug information has (the process's own program; --types FILE names other files). A process has no structures of a kernel (vmlinux.h)", what)
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

// ptRegs is the type of the context. The kernel's own headers have names without an r in front,
// those for users have it.
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
