package bpf

import (
	"fmt"
	"strings"
)

// Section is what the name of a program's section says.
type Section struct {
	Kind   Kind
	Attach string // what stands behind the slash
	Glob   bool   // Attach is a pattern: all functions that match it are meant
	USDT   bool   // Attach is PATH:PROVIDER:NAME, a static probe of the file
}

// ParseSection reads a section's name. Errors say what to write instead.
func ParseSection(name string) (s Section, err error) {
	verb, attach, _ := strings.Cut(strings.TrimPrefix(name, "?"), "/")
	base, variant, _ := strings.Cut(verb, ".")
	s.Attach = attach
	switch base {
	case "kprobe", "uprobe":
	case "kretprobe", "uretprobe":
		s.Kind = Kretprobe
	case "usdt":
		s.USDT = true
	default:
		return s, fmt.Errorf("section %q: not supported: %s", name, insteadOf(base))
	}
	switch variant {
	case "", "s": // programs that may sleep in a kernel
	case "multi", "multi.s":
		s.Glob = true
	case "session", "session.s":
		return s, fmt.Errorf("section %q: the .session form is not supported: write two programs, in %s/ and %s, and pass data by kprobe_call_data (docs/PROGRAMS.md)",
			name, base, strings.Replace(base, "probe", "retprobe", 1)+"/")
	default:
		return s, fmt.Errorf("section %q: the .%s form is not supported: kprobe, kretprobe, uprobe, uretprobe with .multi and .s, and usdt are", name, variant)
	}
	return s, nil
}

// insteadOf says what serves in place of a kind of program that there is not.
func insteadOf(base string) string {
	switch base {
	case "tracepoint", "tp", "raw_tracepoint", "raw_tp", "tp_btf":
		return "a tracepoint is the kernel's; the program's own functions (uprobe/, uretprobe/), its static probes (usdt/), and functions of a kernel (kprobe/, with -k) can be probed"
	case "fentry", "fexit", "fmod_ret":
		return "its arguments are typed by the kernel: use kprobe/ and kretprobe/, and PT_REGS_PARM1(ctx)"
	case "ksyscall", "kretsyscall":
		return "name the kernel's function: kprobe/__x64_sys_NAME"
	case "perf_event":
		return "nothing samples here: probe a function that runs often"
	}
	return "kprobe/, kretprobe/, uprobe/, uretprobe/ and usdt/ are"
}
