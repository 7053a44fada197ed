package script

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"kprobe/bpf"
	"kprobe/internal/proc"
	"kprobe/script/plan"
	"kprobe/script/point"
)

// interpreted is a probe's program that the controller runs, for a thread that stands, or that was sampled.
type interpreted struct {
	vm     *bpf.VM
	cookie uint64
	owner  bool // it asks whose the process is
}

// seen is a thread as such a program finds it.
type seen struct {
	of       *target
	pid, tid int
	task     uint64 // of a kernel: where it is
	comm     string
	cpu      uint32
	pc       uint64
	reg      func(name string) uint64 // 0 for one that no thread has
	read     func(addr uint64, p []byte) error
}

// interpreted makes the program of an attach point.
func (r *Run) interpreted(pt *point.Point, p *plan.Probe) (*interpreted, error) {
	vm, err := r.vm(p)
	if err != nil {
		return nil, err
	}
	return &interpreted{vm, r.cookie(pt.Text), slices.ContainsFunc(vm.Proof.Program.Insns, func(in bpf.Insn) bool {
		return in.Op == bpf.ClassJMP|bpf.Call && in.Imm == bpf.FnGetCurrentUidGid
	})}, nil
}

// runOn runs a program for a thread.
func (r *Run) runOn(i *interpreted, th *seen) error {
	r.running.Lock()
	defer r.running.Unlock()
	env := &i.vm.Env
	env.PidTgid, env.Cookie = uint64(th.pid)<<32|uint64(uint32(th.tid)), i.cookie
	env.Task = th.task
	env.Comm, env.CPU, env.FuncIP, env.Read = th.comm, th.cpu, th.pc, th.read
	if i.owner {
		env.UidGid = owner(th.pid)
	}
	regs := i.vm.Proof.Program.PtRegs()
	context := make([]byte, 0, regs.Size())
	for _, name := range regs.Regs {
		context = binary.LittleEndian.AppendUint64(context, th.reg(name))
	}
	if err := r.standsFor(th.of); err != nil {
		return err
	}
	_, err := i.vm.Run(context)
	return errors.Join(err, r.standsFor(nil))
}

// standsFor says which of several targets the controller's own programs are about; nil is none.
func (r *Run) standsFor(t *target) error {
	if r.pool == nil {
		return nil
	}
	number := uint64(0)
	if t != nil {
		number = t.number
	}
	defer func() { r.standing = number }()
	return r.mapOf(plan.StartName).AddWord(make([]byte, 4), plan.FactProcess, number-r.standing)
}

// owner is a process's real user and group, as the helper has them.
func owner(pid int) uint64 {
	text, err := os.ReadFile(proc.Thread(pid).File("status"))
	if err != nil {
		return 0
	}
	id := func(name string) uint64 {
		line, _ := proc.Field(text, name)
		fields := strings.Fields(line)
		if len(fields) == 0 {
			return 0
		}
		n, _ := strconv.ParseUint(fields[0], 10, 32)
		return n
	}
	return id("Gid")<<32 | id("Uid")
}
