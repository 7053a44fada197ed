package script

import (
	"encoding/binary"
	"os"
	"slices"
	"strconv"
	"strings"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/proc"
	"kprobe/script/compile"
	"kprobe/script/point"
)

// Programs that the controller runs while the thread that they are about stands.

// watch makes the watchpoint of an attach point.
func (r *Run) watch(pt *point.Point, p *compile.Probe) error {
	vm, err := r.vm(p)
	if err != nil {
		return err
	}
	cookie := uint64(len(r.cookies))
	r.cookies = append(r.cookies, pt.Text)
	access := kprobe.ReadWrite
	switch {
	case !pt.Watch.Write:
		access = kprobe.Read
	case !pt.Watch.Read:
		access = kprobe.Write
	}
	w := &kprobe.Watchpoint{Len: pt.Watch.Len, Access: access}
	w.Kp.SymbolName, w.Kp.Addr = pt.Function, arch.Addr(pt.Address)
	w.Handler = func(_ *kprobe.Watchpoint, regs *kprobe.Regs) { r.standing(vm, cookie, regs) }
	r.add(w)
	return nil
}

// standing runs a program for a thread that stands. A program that goes wrong, which no proved one does, is a handler's
// panic: the engine counts it and the thread goes on.
func (r *Run) standing(vm *bpf.VM, cookie uint64, regs *kprobe.Regs) {
	r.running.Lock()
	defer r.running.Unlock()
	task := regs.Task()
	vm.Env.PidTgid, vm.Env.Cookie = uint64(task.PID)<<32|uint64(uint32(task.TID)), cookie
	vm.Env.Comm = regs.Comm()
	vm.Env.FuncIP = uint64(regs.PC())
	vm.Env.CPU = uint32(max(regs.CPU(), 0))
	if slices.ContainsFunc(vm.Proof.Program.Insns, func(in bpf.Insn) bool { return in.Op == bpf.ClassJMP|bpf.Call && in.Imm == bpf.FnGetCurrentUidGid }) {
		vm.Env.UidGid = owner(task.PID)
	}
	vm.Env.Read = func(addr uint64, p []byte) error { return regs.ReadMem(arch.Addr(addr), p) }
	if _, err := vm.Run(registers(vm.Proof.Program.PtRegs(), regs)); err != nil {
		panic(err)
	}
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

// unwatch takes the watchpoints at an address out.
func (r *Run) unwatch(addr uint64) error {
	for i, p := range r.probes {
		if w, ok := p.(*kprobe.Watchpoint); ok && uint64(w.Kp.Addr) == addr {
			r.probes = slices.Delete(r.probes, i, i+1)
			if err := r.session.UnregisterWatchpoint(w); err != nil && !r.over() {
				return err
			}
			return r.unwatch(addr)
		}
	}
	return nil
}

// registers are a thread's as programs find them.
func registers(c *bpf.Context, regs *kprobe.Regs) []byte {
	b := make([]byte, 0, c.Size())
	for _, name := range c.Regs {
		v, err := regs.Reg(name)
		if err != nil {
			v = 0 // orig_rax is none of a thread's registers
		}
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}
