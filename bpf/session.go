package bpf

import "maps"

// A program of a .session section runs where a function is entered and where it returns, and asks
// which of the two it is. Here it is two programs, in each of which the answer is a number, so that
// the other one's code falls away.

// entry is the half for the entry of a program of a .session section, which is the half for the
// return from then on.
func (p *Program) entry() *Program {
	half := *p
	half.Name, half.Kind, half.Attach, half.Called = p.Name+".entry", Kprobe, "", true
	half.origin.kfuncs = maps.Clone(p.origin.kfuncs)
	p.Entry = half.Name
	p.origin.session, half.origin.session = true, true
	return &half
}

// kernelFunctions are the kernel's that programs may call.
var kernelFunctions = []string{"bpf_session_is_return", "bpf_session_cookie", "bpf_copy_from_user_str", "bpf_iter_num_new", "bpf_iter_num_next", "bpf_iter_num_destroy"}

// kernel looks at a call of a function of the kernel.
func (e *edit) kernel(pc int) error {
	switch name := e.kfuncs[pc]; {
	case name == "bpf_copy_from_user_str":
		if flags, ok := e.constant(pc, R4); !ok || flags != 0 {
			return e.p.Refuse(pc, "bpf_copy_from_user_str: flags other than 0 are not supported: set the bytes behind the text first")
		}
		e.instead[pc] = []Insn{helping(FnProbeReadUserStr)}
	case name != "bpf_session_is_return" && name != "bpf_session_cookie":
		return e.iterate(pc)
	case !e.p.origin.session:
		return e.p.Refuse(pc, "%s: this is no program of a session: kprobe.session/ or uprobe.session/", name)
	case name == "bpf_session_cookie":
		e.instead[pc] = []Insn{helping(FnCallWord)}
	case e.p.Kind == Kretprobe:
		e.instead[pc] = []Insn{movTo(R0, 1)}
	default:
		e.instead[pc] = []Insn{movTo(R0, 0)}
	}
	return nil
}
