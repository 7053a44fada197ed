package kernel

// machine has what the kernels of one machine have of their own.
type machine struct {
	// sizes are the bytes that are rewritten. ftraceAt is their beginning, seen from the address in
	// ftrace's record.
	sizes sizes

	shortJumps bool // jump labels may have two bytes

	// areas are sections that are blacklisted (arch_populate_kprobe_blacklist).
	areas []string
}

type sizes struct{ ftraceAt, ftrace, jump, call, bug int }

// machines are by their names in package arch.
var machines = map[string]machine{
	"amd64": {sizes: sizes{0, 5, 5, 5, 2}, shortJumps: true, areas: []string{".entry.text"}},
	"arm64": {
		sizes: sizes{-4, 8, 4, 4, 4}, // two NOPs: one for the return address, one for the call
		areas: []string{".entry.text", ".irqentry.text", ".softirqentry.text", ".idmap.text", ".hyp.text"},
	},
	"s390x": {sizes: sizes{0, 6, 6, 6, 4}, areas: []string{".irqentry.text"}},
	"riscv64": {
		sizes: sizes{-4, 8, 4, 0, 2}, // since 6.16: auipc, and in its record the jalr behind it; c.ebreak
		areas: []string{".irqentry.text"},
	},
}

// on is the record of the kernel's machine; one that nothing is known of has an empty one.
func (k *Kernel) on() machine { return machines[k.arch.Name] }
