package builtin

import (
	"os"
	"strings"
	"syscall"

	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/plan"
	"kprobe/script/settings"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Where a script runs: processes, users, processors and groups, and what is told before.

func (g generator) identity(x *syntax.Ident) { g.identityNamed(x.Name) }

func (g generator) identityOf(x *syntax.Call) { g.identityNamed(x.Name) }

func (g generator) identityNamed(name string) {
	switch name {
	case "pid", "tid":
		g.Helper(bpf.FnGetCurrentPidTgid)
	default:
		g.Helper(bpf.FnGetCurrentUidGid)
	}
	if name == "pid" || name == "gid" {
		g.AluImm(bpf.Rsh, bpf.R0, 32)
		return
	}
	g.AluImm(bpf.Lsh, bpf.R0, 32)
	g.AluImm(bpf.Rsh, bpf.R0, 32)
}

// pidOf is pid(init) or pid(curr_ns): the two are one, where nothing is asked of the kernel.
func (c checker) pidOf(x *syntax.Call) *types.Type {
	if len(x.Args) == 1 {
		if id, ok := x.Args[0].(*syntax.Ident); !ok {
			c.Errorf(x, "%s() only supports curr_ns and init as the argument (%s provided)", x.Name, c.Expr(x.Args[0]).Family())
		} else if id.Name != "curr_ns" && id.Name != "init" {
			c.Errorf(id, "Invalid PID namespace mode: %s (expects: curr_ns or init)", id.Name)
		}
	}
	return types.Uint32
}

func (g generator) comm(_ *syntax.Ident, dst compile.Place, t *types.Type) {
	g.Zero(dst, t.Slot())
	g.Addr(bpf.R1, dst)
	g.Imm(bpf.R2, 16)
	g.Helper(bpf.FnGetCurrentComm)
}

func (c checker) cpid(x *syntax.Ident) *types.Type {
	if c.Opts.CPID == 0 {
		c.Warnf(x, "There is no child process: cpid is 0 without -c")
	}
	return types.Uint64
}

// hasCPID tells whether a command was started.
func hasCPID(c *compile.Checker) uint64 { return types.Word(c.Opts.CPID != 0) }

func (c checker) ncpus(x *syntax.Ident) *types.Type {
	if c.cpus() == 0 {
		c.Errorf(x, "ncpus can not be used here: how many processors the kernel has is not known")
	}
	return types.Uint64
}

// cpus are the target's processors; 0 where that is not known.
func (c checker) cpus() uint64 {
	if !c.Opts.Kernel {
		return settings.CPUs()
	}
	if c.Opts.CPUs == nil {
		return 0
	}
	n, err := c.Opts.CPUs()
	if err != nil {
		return 0
	}
	return uint64(n)
}

func (c checker) numaid(x *syntax.Ident) *types.Type {
	if n, err := os.ReadFile("/sys/devices/system/node/online"); c.Opts.Kernel || err == nil && strings.TrimSpace(string(n)) != "0" {
		c.Errorf(x, "numaid can not be used here: the node of a processor is not known")
	}
	return types.Uint32
}

func (c checker) cgroup(x *syntax.Ident) *types.Type {
	if c.Opts.Kernel {
		c.Errorf(x, "cgroup can not be used on a kernel yet")
	}
	return types.Uint64
}

func (g generator) cgroup(*syntax.Ident) {
	at := plan.FactCgroup
	if g.Inside() {
		at = plan.FactTargetCgroup
	}
	g.MapValue(bpf.R1, g.Start, 0)
	g.Load(bpf.R0, compile.Cell(bpf.R1, at), 8, false)
}

// hosts refuses what is known of the kernel that kprobe runs on, where the target is another.
func (c checker) hosts(x *syntax.Call) {
	if c.Opts.Kernel {
		c.Errorf(x, "%s() can not be used on a kernel yet: its control groups are not known", x.Name)
	}
}

func (c checker) cgroupID(x *syntax.Call) *types.Type {
	c.hosts(x)
	c.literal(x, 0)
	return types.Uint64
}

func (g generator) cgroupID(x *syntax.Call) {
	path := x.Args[0].(*syntax.Str).Value
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		g.Errorf(x, "Failed to resolve cgroup path %s: %v", path, err)
	}
	g.Imm(bpf.R0, st.Ino)
}

func (c checker) cgroupPath(x *syntax.Call) *types.Type {
	c.hosts(x)
	t := c.Expr(x.Args[0])
	if t.Kind != types.None && t.Kind != types.Int {
		c.Errorf(x, "cgroup_path() only supports int arguments (%s provided)", t.Family())
	}
	if len(x.Args) == 2 {
		c.literal(x, 1)
	}
	return &types.Type{Kind: types.CgroupPath, Size: 8}
}

// helped is the value that a helper without arguments has.
func helped(helper int32) func(generator, *syntax.Ident) {
	return func(g generator, _ *syntax.Ident) { g.Helper(helper) }
}

// known is a value that does not change.
func known(n func(generator) uint64) func(generator, *syntax.Ident) {
	return func(g generator, _ *syntax.Ident) { g.Imm(bpf.R0, n(g)) }
}
