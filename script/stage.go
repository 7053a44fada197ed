package script

import (
	"fmt"
	"strings"

	"kprobe/bpf"
	"kprobe/bpf/verify"
	"kprobe/script/plan"
	"kprobe/script/syntax"
)

// Stage is what the compiler has made of the script by a stage, for people who look for a mistake in one of
// the two: "ast" is the script with its macros put in, "types" are those of its maps, "codegen" (also
// "codegen-opt" and "dis", which are the same here) the instructions, "verifier" what was proved of them,
// "all" all of these. "parse" and "libbpf" have nothing to say. Errors: no such stage.
func (s *Script) Stage(name string) (string, error) {
	switch name {
	case "ast":
		return "AST after: macros\n-------------------\n" + syntax.Format(s.plan.File) + "\n", nil
	case "types":
		return s.types(), nil
	case "codegen", "codegen-opt", "dis", "code":
		return s.Code(), nil
	case "verifier":
		return s.proofs(), nil
	case "parse", "libbpf":
		return "", nil
	case "all":
		ast, _ := s.Stage("ast")
		return ast + s.types() + s.Code() + s.proofs(), nil
	}
	return "", fmt.Errorf("no stage %q", name)
}

func (s *Script) types() string {
	var b strings.Builder
	for _, m := range s.plan.Maps {
		key := ""
		if m.Key != nil {
			key = "[" + m.Key.String() + "]"
		}
		fmt.Fprintf(&b, "%s%s: %s\n", m.Name, key, m.Value)
	}
	return b.String()
}

// proofs says of each program what the verifier does.
func (s *Script) proofs() string {
	var b strings.Builder
	for _, p := range s.plan.Probes {
		for _, program := range p.Programs() {
			verdict := "proved"
			if _, err := verify.Program(program); err != nil {
				verdict = refusal(err).Error()
			}
			fmt.Fprintf(&b, "%s%s: %d instructions: %s\n", p.Points[0].Text, part(p, program), len(program.Insns), verdict)
		}
	}
	return b.String()
}

// Code is the programs' instructions.
func (s *Script) Code() string {
	var b strings.Builder
	for _, p := range s.plan.Probes {
		for _, program := range p.Programs() {
			fmt.Fprintf(&b, "%s%s:\n", p.Points[0].Text, part(p, program))
			second := false
			for i, in := range program.Insns {
				for _, l := range program.Lines {
					if l.Insn == i {
						fmt.Fprintf(&b, "; %s\n", l.Text)
					}
				}
				if !second {
					fmt.Fprintf(&b, "%5d  %v\n", i, in)
				}
				second = in.Wide()
			}
		}
	}
	return b.String()
}

// part tells the program at the entry from the one at the return.
func part(p *plan.Probe, program *bpf.Program) string {
	if program == p.Entry {
		return ", at the entry"
	}
	return ""
}
