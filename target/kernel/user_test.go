package kernel_test

import (
	"encoding/binary"
	"maps"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/internal/vm/vmtest"
)

// A program in a kernel asks whose the task is that it interrupts.
func TestUserInside(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "dmesg -c >/dev/null")
	s, stops := openCounting(t, v)
	defer s.Close()
	users := []*bpf.MapSpec{{Name: "users", Type: bpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 64}}
	insns, err := bpftest.Assemble(`call get_current_uid_gid; *(u64 *)(r10 -8) = r0; *(u64 *)(r10 -16) = 1;
		r1 = map users; r2 = r10; r2 += -8; r3 = r10; r3 += -16; r4 = 0; call map_update_elem; r0 = 0; exit`, users...)
	if err != nil {
		t.Fatal(err)
	}
	ps, err := s.Load(&bpf.Collection{Maps: users, Programs: []*bpf.Program{{Name: "ask", Kind: bpf.Kprobe, Insns: insns, Maps: users}}})
	if err != nil {
		t.Fatal(err)
	}
	ask, err := ps.Program("ask")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Register(&kprobe.Kprobe{SymbolName: "ksys_sync", Program: ask}); err != nil {
		t.Fatal(err)
	}
	optimizedProbes(t, s)
	before := stops.hits.Load()
	run(t, v, "mkdir -p /etc; echo someone:x:1234:55::/:/bin/sh >/etc/passwd; echo some:x:55: >/etc/group; cp /bin/busybox /tmp/sync")
	run(t, v, "sync; start-stop-daemon -S -c someone:some -x /tmp/sync; rm /tmp/sync /etc/passwd /etc/group")
	got := map[uint64]bool{}
	seen, err := ps.Map("users")
	if err != nil {
		t.Fatal(err)
	}
	for key := range seen.All() {
		got[binary.LittleEndian.Uint64(key)] = true
	}
	if want := map[uint64]bool{0: true, 55<<32 | 1234: true}; !maps.Equal(got, want) {
		t.Errorf("users and groups %v, want %v", got, want)
	}
	if n := stops.hits.Load() - before; n != 0 {
		t.Errorf("%d stops", n)
	}
	sane(t, v)
}
