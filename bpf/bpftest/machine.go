package bpftest

import (
	"fmt"
	"strings"
	"testing"

	"kprobe/bpf"
)

// Listing is a program as a report shows it.
func Listing(p *bpf.Program) string {
	var b strings.Builder
	for pc, i := range p.Insns {
		if s := i.String(); s != "" {
			fmt.Fprintf(&b, "%4d  %s\n", pc, s)
		}
	}
	return b.String()
}

// Machine is an interpreter with maps, and a target to read: a page with a string
// at PageAddr, nothing around it.
func Machine(t testing.TB, proof *bpf.Proof) *bpf.VM {
	t.Helper()
	l, err := bpf.Arrange(proof.Program.Maps, 3)
	if err != nil {
		t.Fatal(err)
	}
	seg, err := l.Bind(make([]byte, l.Size), 0x7f0000000000)
	if err != nil {
		t.Fatal(err)
	}
	if err := seg.Init(); err != nil {
		t.Fatal(err)
	}
	page := make([]byte, 4096)
	for i := range page {
		page[i] = byte(i*7)%100 + 1
	}
	copy(page[PageText:], "some text\x00")
	clock := uint64(1000)
	return &bpf.VM{Proof: proof, Segment: seg, StackTop: 0x7e0000001000, Ctx: 0x7d0000000000, Env: bpf.Env{
		PidTgid: 1000<<32 | 1001, UidGid: 5<<32 | 6, Comm: "redis-server", CPU: 3, Slot: 1, FuncIP: 0x401000, Cookie: 77,
		Read: func(addr uint64, p []byte) error {
			if addr < PageAddr || addr-PageAddr > 4096 || uint64(len(p)) > 4096-(addr-PageAddr) {
				return fmt.Errorf("no memory at %#x", addr)
			}
			copy(p, page[addr-PageAddr:])
			return nil
		},
		Now:    func(int32) uint64 { clock++; return clock },
		Random: func() uint32 { clock++; return uint32(clock * 2654435761) },
	}}
}

// The page of a Machine, and where in it the text is.
const (
	PageAddr = 0x10000
	PageText = 100
)
