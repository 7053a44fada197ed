package inside

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/verify"
	"kprobe/internal/inject"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// Programs are eBPF programs that were loaded together, with their maps.
type Programs struct {
	Maps *bpf.Segment
	all  []*Program
}

// Program is one of them, compiled.
type Program struct {
	Spec   *bpf.Program
	proof  *bpf.Proof
	code   *jit.Code
	copies map[*area]*copied

	kernel, reads bool   // it is for a kernel, and one that reads memory for it
	walks         bool   // and stacks
	stack         uint64 // the words of a context that this takes
	users         bool   // and whose tasks' users are known
}

// copied is a program's code in reach of an area.
type copied struct {
	at   arch.Addr
	size int
	of   *Program
	area *area
}

// Results tells whether the program, which runs where a function returns, looks at what that returns.
func (p *Program) Results() bool {
	return p.Spec.Results || p.proof.Context>>p.Spec.PtRegs().Result&1 != 0
}

// AtReturns tells whether any of the programs is for where functions return.
func AtReturns(ps []*bpf.Program) bool {
	return slices.ContainsFunc(ps, func(p *bpf.Program) bool { return p.Kind == bpf.Kretprobe })
}

// refusal is why no programs can run in a target, where probes nevertheless count inside.
type refusal struct{ error }

// Errno is the errno of what Proofs answers: ENOTSUP where no programs can run in the target, else EINVAL.
func Errno(err error) syscall.Errno {
	if _, ok := err.(refusal); ok {
		return syscall.ENOTSUP
	}
	return syscall.EINVAL
}

// Proofs verifies programs and arranges their maps, with a slot for each thread and one,
// the last, for the controller; pooled are those that lie in a pool, as far as they can. Errors: of the verifier; a program that knows other registers than the target's, or asks for what is not there.
func (in *Inside) Proofs(c *bpf.Collection, pooled bool) ([]*bpf.Proof, *bpf.Layout, error) {
	if in.cfg.refuses != nil {
		return nil, nil, refusal{in.cfg.refuses}
	}
	var proofs []*bpf.Proof
	for _, p := range c.Programs {
		proof, err := verify.Program(p)
		if err != nil {
			return nil, nil, err
		}
		if err := in.cfg.Machine.Code.Fits(proof); err != nil {
			return nil, nil, err
		}
		for _, call := range proof.Calls {
			if call != nil && call.Helper.ID == bpf.FnGetCurrentTask && in.cfg.cpus == nil {
				return nil, nil, fmt.Errorf("program %q asks for the kernel's task, and a process cannot see it: get_current_pid_tgid and get_current_comm tell who runs", p.Name)
			}
			if call != nil && !in.cfg.Machine.Detours.Answers(call.Helper.ID) {
				return nil, nil, fmt.Errorf("program %q calls %s, which no program can in targets of %s", p.Name, call.Helper.Name, in.arch.Name)
			}
		}
		proofs = append(proofs, proof)
	}
	arrange := bpf.Arrange
	if pooled {
		arrange = bpf.ArrangePooled
	}
	l, err := arrange(c.Maps, in.cfg.Room.Threads+1)
	return proofs, l, err
}

// Memory is some that the target has at an address.
type Memory struct {
	Addr arch.Addr
	Ours []byte
}

// Compile makes machine code for programs whose maps lie in memory that is zeros so far, and in a pool, which has
// contents.
func (in *Inside) Compile(proofs []*bpf.Proof, l *bpf.Layout, own, pool Memory) (*Programs, error) {
	if in.cfg.cpus != nil && in.cfg.Clock == nil {
		return nil, errors.New("the kernel's clock is not known")
	}
	maps, err := l.BindPool(own.Ours, uint64(own.Addr), pool.Ours, uint64(pool.Addr))
	if err != nil {
		return nil, err
	}
	maps.Given = in.cfg.Slots.Count
	if err := maps.Init(); err != nil {
		return nil, err
	}
	ps := &Programs{Maps: maps}
	env := &jit.Env{Segment: own.Addr, Layout: maps.Layout, Clock: in.cfg.Clock}
	if in.cfg.Key.Kind == segment.CPU {
		env.CPU = &in.cfg.Key.Offset
	}
	for _, proof := range proofs {
		code, err := in.cfg.Machine.Code.Compile(proof, env)
		if err != nil {
			return nil, err
		}
		ps.all = append(ps.all, &Program{Spec: proof.Program, proof: proof, code: code, copies: make(map[*area]*copied),
			kernel: in.cfg.cpus != nil, reads: in.cfg.readers != (inject.Readers{}), walks: in.cfg.readers.Stack != 0, stack: in.cfg.Machine.Detours.StackContext, users: in.cfg.Key.Task.Cred != 0})
	}
	return ps, nil
}

// Forget forgets where code was: the target has executed another program.
func (ps *Programs) Forget() {
	for _, p := range ps.all {
		clear(p.copies)
	}
}

// Specs are what they were made of, in their object's order.
func (ps *Programs) Specs() (all []*bpf.Program) {
	for _, p := range ps.all {
		all = append(all, p.Spec)
	}
	return all
}

// Program finds one by name, nil where there is none.
func (ps *Programs) Program(name string) *Program {
	for _, p := range ps.all {
		if p.Spec.Name == name {
			return p
		}
	}
	return nil
}

// Map finds a map by name, nil where there is none.
func (ps *Programs) Map(name string) *bpf.Map {
	for i, m := range ps.Maps.Maps {
		if m.Name == name {
			return ps.Maps.Map(i)
		}
	}
	return nil
}

// NotInKernels says what the program does that it cannot do in this kernel; "" if it
// does nothing of that. A read that faults would be the kernel's own fault, so the kernel has
// to read for us.
func (p *Program) NotInKernels() string {
	if p.Spec.FollowsFrames() {
		return "follows frame pointers (get_stack; get_stackid does not)"
	}
	for _, c := range p.proof.Calls {
		if c == nil {
			continue
		}
		switch c.Helper.ID {
		case bpf.FnProbeRead, bpf.FnProbeReadUser, bpf.FnProbeReadKernel, bpf.FnProbeReadStr, bpf.FnProbeReadUserStr,
			bpf.FnProbeReadKernelStr:
			if !p.reads {
				return "reads memory"
			}
		case bpf.FnProbeWriteUser:
			return "writes memory"
		case bpf.FnGetStackid:
			if !p.walks {
				return "walks stacks"
			}
		case bpf.FnGetCurrentUidGid:
			if !p.users {
				return "asks for the user"
			}
		}
	}
	return ""
}

// context are the words of its context that the program reads, or what it calls.
func (p *Program) context() uint64 {
	if p.kernel && p.callsHelper(bpf.FnGetStackid) {
		return p.code.Context | p.stack
	}
	return p.code.Context
}

func (p *Program) callsHelper(id int32) bool {
	return slices.ContainsFunc(p.proof.Calls, func(c *bpf.HelperCall) bool { return c != nil && c.Helper.ID == id })
}

// CallData is how many bytes of the call's private data the program asks for.
func (p *Program) CallData() int { return p.proof.CallData }

// Overrides tells whether the program may replace the probed function.
func (p *Program) Overrides() bool { return p.callsHelper(bpf.FnOverrideReturn) }

// code finds or plans the program's code in reach of an area.
func (b *Batch) code(p *Program, a *area) (*copied, error) {
	if c := p.copies[a]; c != nil {
		return c, nil
	}
	room := segment.StackSize - jit.HelperStack
	if p.kernel {
		room -= inject.ReaderStack
	}
	if p.code.Stack > room {
		return nil, fmt.Errorf("program %q takes %d bytes of stack, at most %d are there", p.Spec.Name, p.code.Stack, room)
	}
	c := &copied{size: len(p.code.Bytes), of: p, area: a}
	var err error
	if p.callsHelper(bpf.FnTracePrintk) || p.callsHelper(bpf.FnTraceVprintk) {
		if err = b.in.prints(); err != nil {
			return nil, err
		}
	}
	if c.at, err = b.place(around(a.near, a.Addr, a.Size()), c.size); err != nil {
		return nil, err
	}
	text, err := p.code.Link(c.at, a.Helper)
	if err != nil {
		return nil, err
	}
	p.copies[a] = c
	b.codes = append(b.codes, c)
	b.write(c.at, text)
	return c, nil
}
