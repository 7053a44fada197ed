package event

import (
	"testing"
	"time"

	"kprobe/arch"
)

// flat is the cheapest memory there is, so that the time measured is ours.
type flat [2 * pageSize]byte

func (m *flat) ReadAt(addr arch.Addr, p []byte) error {
	if addr > arch.Addr(len(m)-len(p)) {
		return errUnmapped
	}
	copy(p, m[addr:])
	return nil
}

// benchCapture is an open(): a number, a path, a word behind a pointer.
func benchCapture(b *testing.B) (*Capture, *Context) {
	b.Helper()
	mem := new(flat)
	copy(mem[0x100:], "/usr/lib/x86_64-linux-gnu/libc.so.6\x00")
	c, err := Compile(defined(b, "args").Args, arch.AMD64, nil)
	if err != nil {
		b.Fatal(err)
	}
	var regs arch.Regs
	regs[arch.DI], regs[arch.SI], regs[arch.DX] = 3, 0x100, 0x1008
	return c, &Context{Regs: &regs, Mem: mem}
}

func BenchmarkAppendTo(b *testing.B) {
	c, ctx := benchCapture(b)
	var vs []Value
	b.ReportAllocs()
	for b.Loop() {
		vs = c.AppendTo(vs[:0], ctx)
	}
}

func BenchmarkRun(b *testing.B) {
	c, ctx := benchCapture(b)
	b.ReportAllocs()
	for b.Loop() {
		c.Run(ctx)
	}
}

func benchEvent(b *testing.B) *Event {
	c, ctx := benchCapture(b)
	return &Event{
		Time: 3747170 * time.Microsecond, PID: 144, TID: 144, Comm: "head", Group: "mygrp", Name: "args",
		Addr: 0xffffffff8134a350, Func: "do_sys_openat2", Size: 0x170, Args: c.Run(ctx),
	}
}

func BenchmarkAppendText(b *testing.B) {
	e := benchEvent(b)
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out = e.AppendText(out[:0])
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	e := benchEvent(b)
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out = e.AppendJSON(out[:0])
	}
}

// The captures themselves, without text, must not allocate: a hit may come
// 100 000 times a second.
func TestNumbersDoNotAllocate(t *testing.T) {
	mem := new(flat)
	c, err := Compile(parse(t, `p vfs_read a=%di b=+8(%di) c=+0(%di):x8[4]`).Args, arch.AMD64, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := &Context{Regs: new(arch.Regs), Mem: mem}
	vs := c.Run(ctx)
	if n := testing.AllocsPerRun(100, func() { vs = c.AppendTo(vs[:0], ctx) }); n != 0 {
		t.Errorf("%v allocations a hit", n)
	}
}
