package builtin

import (
	"slices"
	"strings"

	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Addresses of variables and functions, of the target and the kernel.

func (c checker) curtask(x *syntax.Ident) *types.Type {
	if len(c.At) > 0 && !c.Everywhere(func(p *point.Point) bool { return p.Inside() && (c.Opts.Kernel || p.OfKernelAlone()) }) {
		c.Errorf(x, "curtask can not be used here: it is a kernel's task, at a probe on a kernel")
		return nil
	}
	if t := c.Known("struct task_struct"); t != nil {
		return types.PointerTo(t)
	}
	return types.Uint64
}

func (c checker) kaddr(x *syntax.Call) *types.Type {
	name, ok := c.literal(x, 0)
	if ok && c.Opts.KernelSymbol != nil && c.Final {
		if _, err := c.Opts.KernelSymbol(name); err != nil {
			c.Errorf(x, "Failed to resolve kernel symbol: %s%v", name, err)
		}
	}
	return types.Uint64
}

func (g generator) kaddr(x *syntax.Call) {
	if g.Opts.KernelSymbol == nil {
		g.Errorf(x, "%s() is not supported yet", x.Name)
		return
	}
	addr, _ := g.Opts.KernelSymbol(x.Args[0].(*syntax.Str).Value)
	g.Imm(bpf.R0, addr)
}

// percpuKaddr is a variable that each processor of a kernel has of its own.
func (c checker) percpuKaddr(x *syntax.Call) *types.Type {
	if !c.Opts.Kernel {
		c.Errorf(x, "percpu_kaddr(): the variables of each processor are known of a kernel that is the target (-k)")
	}
	c.kaddr(x)
	if len(x.Args) == 2 {
		c.Number(x.Args[1], "percpu_kaddr()")
	}
	return types.PointerTo(types.Uint64)
}

// percpu leaves in R0 the address of a processor's own variable; 0 where there is no such processor.
func (g generator) percpu(x *syntax.Call) {
	if g.Opts.KernelSymbol == nil {
		g.Imm(bpf.R0, 0)
		return
	}
	at := func(name string) uint64 {
		addr, err := g.Opts.KernelSymbol(name)
		if err != nil {
			g.Errorf(x, "percpu_kaddr(): the kernel has no %s%v", name, err)
		}
		return addr
	}
	if len(x.Args) == 2 {
		g.Number(x.Args[1])
	} else {
		g.Helper(bpf.FnGetSmpProcessorID)
	}
	cpu := g.Save()
	none, end := g.NewLabel(), g.NewLabel()
	g.Imm(bpf.R0, at("nr_cpu_ids"))
	g.ReadTarget(types.Uint32)
	g.Load(bpf.R1, cpu, 8, false)
	g.IfReg(bpf.Jge, bpf.R1, bpf.R0, none)
	g.AluImm(bpf.Lsh, bpf.R1, 3)
	g.Imm(bpf.R0, at("__per_cpu_offset"))
	g.Alu(bpf.Add, bpf.R0, bpf.R1)
	g.ReadTarget(types.Uint64)
	g.Imm(bpf.R1, at(x.Args[0].(*syntax.Str).Value))
	g.Alu(bpf.Add, bpf.R0, bpf.R1)
	g.GoTo(end)
	g.Put(none)
	g.Imm(bpf.R0, 0)
	g.Put(end)
}

// isErr asks whether a pointer of the kernel's is an error number.
func (c checker) isErr(x *syntax.Call) *types.Type {
	c.Number(x.Args[0], "is_err()")
	return types.BoolT
}

// isErr leaves in R0 whether a word is one of the 4,095 highest, as MAX_ERRNO of Linux has it.
func (g generator) isErr(x *syntax.Call) {
	g.Number(x.Args[0])
	g.Flag(func(yes compile.Label) { g.IfImm(bpf.Jge, bpf.R0, -4095, yes) })
}

func (c checker) uaddr(x *syntax.Call) *types.Type {
	name, ok := c.literal(x, 0)
	if !c.Everywhere(func(p *point.Point) bool { return strings.HasPrefix(p.Provider, "u") }) {
		c.Errorf(x, "uaddr can not be used with '%s' probes", c.At[0].Provider)
		return nil
	} else if ok && strings.ContainsAny(name, "?*[] \t") {
		c.Errorf(x, "uaddr() expects a symbol's name, not %q", name)
		return nil
	}
	if !ok || len(c.At) == 0 {
		return types.PointerTo(types.Uint64)
	}
	v := c.variableOf(x, c.At[0].Target, name)
	for _, pt := range c.At {
		if pt.Target != c.At[0].Target {
			c.Errorf(x, "uaddr: the attach points are in different files")
		}
	}
	return v
}

// variableOf is the type of a file's variable's address: bytes and words as its size says. The plan remembers it.
func (c checker) variableOf(x *syntax.Call, target, name string) *types.Type {
	if c.Opts.Variable == nil {
		return types.PointerTo(types.Uint64)
	}
	addr, size, err := c.Opts.Variable(target, name)
	if err != nil {
		c.Errorf(x, "Could not resolve symbol: %s:%s: %v", target, name, err)
		return nil
	}
	v := plan.Variable{Target: target, Name: name, Addr: addr}
	if !slices.Contains(c.Variables, v) {
		c.Variables = append(c.Variables, v)
	}
	c.AddressOf[x] = slices.Index(c.Variables, v)
	if size == 1 || size == 2 || size == 4 {
		return types.PointerTo(types.IntOf(int(size), true))
	}
	return types.PointerTo(types.Int64)
}

func (g generator) uaddr(x *syntax.Call) {
	g.MapValue(bpf.R1, g.Start, 0)
	g.Load(bpf.R0, compile.Cell(bpf.R1, plan.FactVariables+8*g.AddressOf[x]), 8, false)
}

// space is kptr and uptr: memory is read where it is, whichever is said.
func (c checker) space(x *syntax.Call) *types.Type {
	t := c.Expr(x.Args[0])
	if t.Kind != types.None && t.Kind != types.Int && t.Kind != types.Pointer {
		c.Errorf(x, "%s() only supports int or pointer arguments (%s provided)", x.Name, t.Family())
	}
	return t
}
