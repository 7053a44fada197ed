package bpf_test

import (
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/asm"

	"kprobe/bpf"
	"kprobe/bpf/verify"
)

// A program that adds up the first argument of a function, from its text to the
// total: assembled, proved, its map laid out, run, and the map read.
func Example() {
	maps := []*bpf.MapSpec{{Name: "total", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 1}}
	program, err := bpf.FromAsm("add", bpf.Kprobe, asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 112, asm.DWord), // rdi
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, 0).WithReference("total"),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Reg(asm.R1, asm.R6),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}, maps)
	if err != nil {
		fmt.Println(err)
		return
	}
	proof, err := verify.Program(program)
	if err != nil {
		fmt.Println(err)
		return
	}
	layout, err := bpf.Arrange(maps, 2) // two threads
	if err != nil {
		fmt.Println(err)
		return
	}
	segment, err := layout.Bind(make([]byte, layout.Size), 0x7f0000000000)
	if err == nil {
		err = segment.Init()
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	for thread, size := range []uint64{100, 23} {
		regs := make([]byte, bpf.AMD64.Size())
		binary.LittleEndian.PutUint64(regs[112:], size)
		vm := bpf.VM{Proof: proof, Segment: segment, StackTop: 0x7e0000001000, Ctx: 0x7d0000000000, Env: bpf.Env{Slot: thread}}
		if _, err := vm.Run(regs); err != nil {
			fmt.Println(err)
			return
		}
	}
	total, err := segment.Map(0).Lookup(make([]byte, 4))
	fmt.Println(binary.LittleEndian.Uint64(total), err)
	// Output: 123 <nil>
}
