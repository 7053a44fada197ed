package bpf

import (
	"fmt"
	"strings"
)

// Section is the parsed name of a program's section.
type Section struct {
	Kind   Kind
	Attach string // the text behind the slash
	Glob   bool   // Attach is a pattern: all functions that match it are meant
	USDT   bool   // Attach is PATH:PROVIDER:NAME, a static probe of the file

	// Session tells of a program for both a function's entry and its return.
	Session bool
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
		if base != "kprobe" && base != "uprobe" {
			return s, fmt.Errorf("section %q: a session is of a function's entry and its return: kprobe.session/ or uprobe.session/", name)
		}
		s.Kind, s.Glob, s.Session = Kretprobe, true, true
	default:
		return s, fmt.Errorf("section %q: the .%s form is not supported: kprobe, kretprobe, uprobe, uretprobe with .multi, .session and .s, and usdt are", name, variant)
	}
	return s, nil
}

// insteadOf says which kind of program serves in place of one that is not supported.
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
	case "xdp", "tc", "tcx", "classifier", "action", "netfilter", "socket", "socket_filter", "sk_skb", "sk_msg", "sockops", "cgroup_skb", "lwt_xmit", "flow_dissector":
		return "it sees packets in a kernel: probe the functions that send and receive them in the program (uprobe/libc.so.6:send), or a kernel's (kprobe/, with -k)"
	case "lsm", "lsm_cgroup", "cgroup", "struct_ops", "sk_lookup", "sk_reuseport":
		return "it decides for a kernel, which there is not: a uprobe of a function may decide with bpf_override_return"
	case "iter", "syscall", "freplace", "ext":
		return "it runs where a kernel's loader calls it: a program here runs where a function is probed"
	}
	return "kprobe/, kretprobe/, uprobe/, uretprobe/ and usdt/ are"
}
