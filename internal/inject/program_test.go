package inject_test

import (
	"encoding/binary"
	"testing"

	"kprobe/bpf"
	"kprobe/internal/inject"
	"kprobe/internal/segment"
)

// countByArgument adds one to the element of map "hash" whose key is the first argument.
const countByArgument = `
	r1 = *(u64 *)(r1 +112)
	*(u64 *)(r10 -8) = r1
	r2 = r10
	r2 += -8
	r1 = map hash
	call map_lookup_elem
	if r0 == 0 goto new
	r1 = *(u64 *)(r0 +0)
	r1 += 1
	*(u64 *)(r0 +0) = r1
	r0 = 0
	exit
new:	r1 = 1
	*(u64 *)(r10 -16) = r1
	r1 = map hash
	r2 = r10
	r2 += -8
	r3 = r10
	r3 += -16
	r4 = 0
	call map_update_elem
	r0 = 0
	exit`

// recordArguments writes 32 bytes: the time, who it is, both arguments.
const recordArguments = `
	r6 = r1
	r1 = map ring
	r2 = 32
	r3 = 0
	call ringbuf_reserve
	if r0 == 0 goto out
	r7 = r0
	call ktime_get_ns
	*(u64 *)(r7 +0) = r0
	call get_current_pid_tgid
	*(u64 *)(r7 +8) = r0
	r1 = *(u64 *)(r6 +112)
	*(u64 *)(r7 +16) = r1
	r1 = *(u64 *)(r6 +104)
	*(u64 *)(r7 +24) = r1
	r1 = r7
	r2 = 0
	call ringbuf_submit
out:	r0 = 0
	exit`

func hashSpec() *bpf.MapSpec {
	return &bpf.MapSpec{Name: "hash", Type: bpf.PerCPUHash, KeySize: 8, ValueSize: 8, MaxEntries: 1024}
}

func ringSpec() *bpf.MapSpec {
	return &bpf.MapSpec{Name: "ring", Type: bpf.RingBuf, MaxEntries: 1 << 16}
}

// Programs from the verifier and the compiler, run by four threads at once.
func TestCompiledPrograms(t *testing.T) {
	h := startHost(t, segment.Layout{Threads: 8, Counters: 16, Extra: 4 << 20})
	s := h.maps(hashSpec(), ringSpec())
	count, record := h.compiled(countByArgument, s.Layout), h.compiled(recordArguments, s.Layout)
	h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Programs: []inject.Program{count, record}}))
	const threads, n = 4, 500
	// All keys are there before: a thread that is not scheduled while it inserts one makes
	// others fail with -EBUSY, which the program does not count.
	for i := range uint64(n) {
		if err := s.Map(0).Update(binary.LittleEndian.AppendUint64(nil, 1000+i), make([]byte, 8), bpf.UpdateAny); err != nil {
			t.Fatal(err)
		}
	}
	h.say("start %d", threads)
	slots := map[uint64]int{}
	for i := range threads {
		slot := h.seg.Assign(segment.Thread{Key: h.key(i + 1), TID: 100 + i})
		slots[uint64(100+i)] = slot
	}
	h.expectSum("f_lea", threads, n, 1000, 7, threads*(sums(n, 7)+1000*n))
	h.say("stop")
	h.expectCounter(3, threads*n)
	for i := range uint64(n) {
		v, err := s.Map(0).Lookup(binary.LittleEndian.AppendUint64(nil, 1000+i))
		if err != nil || binary.LittleEndian.Uint64(v) != threads {
			t.Fatalf("key %d: %v, %v", 1000+i, v, err)
		}
	}
	r, err := bpf.NewReader(s.Map(1))
	if err != nil {
		t.Fatal(err)
	}
	next := map[uint64]uint64{}
	for {
		rec, ok, err := r.Read()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(rec.Data[8*i:]) }
		tid := word(1) & 0xffffffff
		if slots[tid] != rec.Slot || word(1)>>32 != uint64(h.pid) || word(2) != 1000+next[tid] || word(3) != 7 || word(0) == 0 {
			t.Fatalf("slot %d, tid %d of %v: %x", rec.Slot, tid, slots, rec.Data)
		}
		next[tid]++
	}
	var all uint64
	for _, n := range next {
		all += n
	}
	if all+r.Lost() != threads*n || r.Lost() != 0 {
		t.Errorf("%d records and %d lost, of %d", all, r.Lost(), threads*n)
	}
}

// A latency histogram's two halves: the entry's time is found by the return.
func TestCompiledReturn(t *testing.T) {
	h := startHost(t, segment.Layout{Threads: 8, Counters: 16, Extra: 4 << 20})
	s := h.maps(hashSpec(), ringSpec())
	// The value that is returned is counted, and the context's PC is the caller's.
	returned := h.compiled(`
		r6 = r1
		r1 = *(u64 *)(r6 +80)
		*(u64 *)(r10 -8) = r1
		r1 = *(u64 *)(r6 +128)
		*(u64 *)(r10 -16) = r1
		r1 = r6
		call get_func_ip
		*(u64 *)(r10 -24) = r0
		r1 = r6
		call get_attach_cookie
		*(u64 *)(r10 -32) = r0
		r1 = map ring
		r2 = r10
		r2 += -32
		r3 = 32
		r4 = 0
		call ringbuf_output
		r0 = 0
		exit`, s.Layout)
	returned.FuncIP, returned.Cookie = h.addr["f_lea"], 0x1234567812345678
	h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Return: &inject.Return{Max: 5, Missed: 7, Hits: 8,
		Entry: []inject.Program{h.compiled(countByArgument, s.Layout)}, Programs: []inject.Program{returned}}}))
	h.expectSum("f_lea", 0, 100, 0, 5, sums(100, 5))
	r, err := bpf.NewReader(s.Map(1))
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(100) {
		rec, ok, err := r.Read()
		if err != nil || !ok {
			t.Fatal(i, ok, err)
		}
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(rec.Data[8*i:]) }
		if word(0) != 0x1234567812345678 || word(1) != uint64(returned.FuncIP) || word(3) != i+5 || word(2)>>40 == 0 || word(2) == word(1) {
			t.Fatalf("return %d: %x", i, rec.Data)
		}
	}
}
