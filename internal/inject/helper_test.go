package inject_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/layout"
	"kprobe/internal/asm/x86"
	"kprobe/internal/inject"
	x86code "kprobe/internal/inject/x86"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// Where the tests have things in the segment's extra memory: maps from 0 on.
const (
	listAt   = 4 << 20 // of calls
	bufferAt = 6 << 20
	extra    = 8 << 20
)

// errno is what a helper answers for an error.
func errno(n int) uint64 { return uint64(-int64(n)) }

// driver makes helpers be called: one hit of f_lea calls all that were listed.
type driver struct {
	flags uint64 // that mended begins with
	*host
	maps    *bpf.Segment // hides host.maps
	calls   [][7]uint64  // routine, five arguments, the answer
	buffers int
}

func newDriver(t testing.TB, maps ...*bpf.MapSpec) *driver {
	t.Helper()
	if foreign() {
		return foreignDriver(t, maps...)
	}
	h := startHost(t, segment.Layout{Threads: 4, Counters: 16, Extra: extra})
	h.seg.Assign(segment.Thread{Key: h.key(0), TID: h.pid, Comm: "host"})
	d := &driver{host: h, maps: h.maps(maps...)}
	if d.maps.Size > listAt {
		t.Fatalf("maps of %d bytes", d.maps.Size)
	}
	// What a routine must keep it finds changed registers by: rbx and r13 are the
	// list, the rest stops at a trap.
	drive := func(a *x86code.Asm) {
		const kept = 0x0123456789abcdef
		again, broken := inject.NewLabel(), inject.NewLabel()
		a.MovConst(arch.BX, uint64(h.seg.ExtraAddr())+listAt+8)
		a.Load(arch.R13, arch.BX, -8)
		a.MovConst(arch.R14, kept)
		a.Mov(arch.R15, arch.R14)
		a.Mov(arch.BP, arch.R14)
		a.Place(again)
		for i, r := range []arch.Reg{arch.DI, arch.SI, arch.DX, arch.CX, arch.R8} {
			a.Load(r, arch.BX, 8+8*i)
		}
		a.Put(0xff, 0x13) // call [rbx]
		a.Store(arch.BX, 48, arch.AX)
		a.MovConst(arch.AX, kept)
		for _, r := range []arch.Reg{arch.BP, arch.R14, arch.R15} {
			a.Compare(r, arch.AX)
			a.Jcc(x86.CondNE, broken)
		}
		a.Lea(arch.BX, arch.BX, 56)
		a.Put(0x49, 0xff, 0xcd) // dec r13
		a.Jcc(x86.CondNE, again)
		a.Ret()
		a.Place(broken)
		a.Put(x86.ByteInt3)
	}
	if narrow() {
		drive = d.driveNarrow
	}
	p := h.program(drive)
	h.arm(h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Programs: []inject.Program{p}}))
	return d
}

// driveNarrow is the program in 32-bit code: its list and the count are on the stack, and
// below them the state, which routines must keep.
func (d *driver) driveNarrow(a *x86code.Asm) {
	again, broken := inject.NewLabel(), inject.NewLabel()
	a.MovConst(arch.BX, uint64(d.seg.ExtraAddr())+listAt+8)
	a.Load(arch.CX, arch.BX, -8)
	for _, r := range []arch.Reg{arch.BX, arch.CX, arch.BP} {
		a.PushReg(r)
	}
	a.Place(again)
	a.Load(arch.BX, arch.SP, 8)
	for off := 0; off < 40; off += 4 {
		a.Load(arch.AX, arch.BX, 8+off)
		a.Store(arch.BP, jit.StateRegs+8+off, arch.AX)
	}
	a.Put(0xff, 0x13) // call [ebx]
	a.CmpReg(arch.SP, 0, arch.BP)
	a.Jcc(x86.CondNE, broken)
	a.Load(arch.BX, arch.SP, 8)
	for off := 0; off < 8; off += 4 {
		a.Load(arch.AX, arch.BP, jit.StateRegs+off)
		a.Store(arch.BX, 48+off, arch.AX)
	}
	a.Lea(arch.BX, arch.BX, 56)
	a.Store(arch.SP, 8, arch.BX)
	a.Put(0xff, 0x4c, 0x24, 4) // dec [esp+4]
	a.Jcc(x86.CondNE, again)
	a.Lea(arch.SP, arch.SP, 12)
	a.Ret()
	a.Place(broken)
	a.Put(x86.ByteInt3)
}

func (d *driver) mapAddr(i int) uint64 { return d.maps.Base + d.maps.Offs[i] }

// buffer puts bytes where the target has them too, and gives both addresses.
func (d *driver) buffer(b []byte) (addr uint64, mem []byte) {
	d.Helper()
	at := bufferAt + d.buffers
	d.buffers += segment.RoundUp(len(b)+1, 8)
	if bufferAt+d.buffers > extra {
		d.Fatal("no room for buffers")
	}
	mem = d.seg.Extra()[at:][:len(b)]
	copy(mem, b)
	return uint64(d.seg.ExtraAddr()) + uint64(at), mem
}

// later lists a call of a helper; its answer will be in calls[n].
func (d *driver) later(helper int32, args ...uint64) (n int) {
	d.Helper()
	at, ok := d.area.Helper(helper)
	if !ok {
		d.Fatalf("no routine for helper %d", helper)
	}
	c := [7]uint64{uint64(at)}
	copy(c[1:6], args)
	d.calls = append(d.calls, c)
	return len(d.calls) - 1
}

// list writes what was listed for the target to do.
func (d *driver) list() []byte {
	b := d.seg.Extra()[listAt:bufferAt]
	clear(b[:8+len(d.calls)*56])
	binary.LittleEndian.PutUint64(b, uint64(len(d.calls)))
	for i, c := range d.calls {
		for j, w := range c {
			binary.LittleEndian.PutUint64(b[8+56*i+8*j:], w)
		}
	}
	return b
}

// run does what was listed and gives the answers.
func (d *driver) run() (answers []uint64) {
	d.Helper()
	if foreign() {
		answers, _ = d.called()
		return answers
	}
	b := d.list()
	d.expectSum("f_lea", 0, 1, 1, 2, 3)
	for i := range d.calls {
		answers = append(answers, binary.LittleEndian.Uint64(b[8+56*i+48:]))
	}
	d.calls, d.buffers = nil, 0
	return answers
}

// one calls a helper once.
func (d *driver) one(helper int32, args ...uint64) uint64 {
	d.Helper()
	d.later(helper, args...)
	return d.run()[0]
}

// errnoOf is the errno of an error of package bpf's.
func errnoOf(t testing.TB, err error) uint64 {
	for n, e := range map[int]error{bpf.ENOENT: bpf.ErrNotExist, bpf.EEXIST: bpf.ErrExist, bpf.E2BIG: bpf.ErrFull, bpf.EBUSY: bpf.ErrBusy, bpf.EINVAL: bpf.ErrInvalid} {
		if errors.Is(err, e) {
			return errno(n)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// TestMaps does the same with maps in the target and with package bpf's: the
// answers are the same, and the memory.
func TestMaps(t *testing.T) {
	specs := []*bpf.MapSpec{
		{Name: "array", Type: bpf.Array, KeySize: 4, ValueSize: 12, MaxEntries: 10},
		{Name: "hash", Type: bpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 30},
		{Name: "odd", Type: bpf.Hash, KeySize: 13, ValueSize: 3, MaxEntries: 20},
		{Name: "small", Type: bpf.LRUHash, KeySize: 4, ValueSize: 16, MaxEntries: 16},
		{Name: "threads", Type: bpf.PerCPUHash, KeySize: 4, ValueSize: 8, MaxEntries: 20},
		{Name: "threads, LRU", Type: bpf.LRUPerCPUHash, KeySize: 16, ValueSize: 8, MaxEntries: 8},
		{Name: "threads, array", Type: bpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 5},
	}
	d := newDriver(t, specs...)
	memory := make([]byte, d.maps.Size)
	mirror, err := d.maps.Layout.Bind(memory, d.maps.Base)
	if err != nil {
		t.Fatal(err)
	}
	if err := mirror.Init(); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	rounds := 50
	if testing.Short() {
		rounds = 10
	}
	const ops = 500
	seen := map[string]int{}
	for round := range rounds {
		var names []string
		var want []uint64
		for range ops {
			i := rnd.IntN(len(specs))
			s, m := specs[i], mirror.Map(i)
			key := make([]byte, s.KeySize)
			binary.LittleEndian.PutUint32(key[rnd.IntN(2)*(len(key)-4):], uint32(rnd.IntN(int(s.MaxEntries)*2)))
			k, _ := d.buffer(key)
			switch rnd.IntN(5) {
			case 0:
				d.later(bpf.FnMapLookupElem, d.mapAddr(i), k)
				_, err := m.Lookup(key)
				names, want = append(names, s.Name+" lookup"), append(want, errnoOf(t, err))
			case 1:
				d.later(bpf.FnMapDeleteElem, d.mapAddr(i), k)
				names, want = append(names, s.Name+" delete"), append(want, errnoOf(t, m.Delete(key)))
			default:
				value := make([]byte, s.ValueSize)
				for j := range value {
					value[j] = byte(rnd.Uint32())
				}
				v, _ := d.buffer(value)
				flags := uint64(rnd.IntN(4))
				d.later(bpf.FnMapUpdateElem, d.mapAddr(i), k, v, flags)
				names, want = append(names, s.Name+" update"), append(want, errnoOf(t, m.Update(key, value, flags)))
			}
		}
		for i, answer := range d.run() {
			if strings.HasSuffix(names[i], "lookup") {
				if answer != 0 && answer-d.maps.Base < d.maps.Size {
					answer = 0
				} else if answer == 0 {
					answer = errno(bpf.ENOENT)
				}
			}
			if answer != want[i] {
				t.Fatalf("round %d: %s answers %d, not %d", round, names[i], int64(answer), int64(want[i]))
			}
			seen[fmt.Sprintf("%s %d", names[i], int64(want[i]))]++
		}
		for i, s := range specs {
			from, to := d.maps.Offs[i], d.maps.Size
			if i+1 < len(specs) {
				to = d.maps.Offs[i+1]
			}
			if !bytes.Equal(d.seg.Extra()[from:to], memory[from:to]) {
				t.Fatalf("round %d: the memory of %s differs", round, s.Name)
			}
		}
	}
	for _, must := range []string{"hash update -7", "hash update -17", "hash update -2", "hash delete -2", "array update -7", "small update 0"} {
		if seen[must] == 0 {
			t.Errorf("never seen: %s, of %v", must, seen)
		}
	}
}

// TestLock has the controller hold a bucket: nobody waits for ever.
func TestLock(t *testing.T) {
	d := newDriver(t, &bpf.MapSpec{Name: "hash", Type: bpf.Hash, KeySize: 4, ValueSize: 4, MaxEntries: 4})
	k, _ := d.buffer([]byte("key."))
	v, _ := d.buffer([]byte("val."))
	if a := d.one(bpf.FnMapUpdateElem, d.mapAddr(0), k, v, 0); a != 0 {
		t.Fatal(a)
	}
	index := d.seg.Extra()[layout.HeaderSize:]
	index[layout.BucketLock] = 1
	d.buffers = 16
	for _, helper := range []int32{bpf.FnMapUpdateElem, bpf.FnMapDeleteElem} {
		if a := d.one(helper, d.mapAddr(0), k, v, 0); a != errno(bpf.EBUSY) {
			t.Errorf("helper %d answers %d while the bucket is locked", helper, int64(a))
		}
	}
	if a := d.one(bpf.FnMapLookupElem, d.mapAddr(0), k); a == 0 {
		t.Error("a lookup minds the lock")
	}
}

// TestRings writes records of all sizes, more than fit, and reads them as the controller does.
func TestRings(t *testing.T) {
	d := newDriver(t, &bpf.MapSpec{Name: "ring", Type: bpf.RingBuf, MaxEntries: bpf.MinRing},
		&bpf.MapSpec{Name: "perf", Type: bpf.PerfEventArray, KeySize: 4, ValueSize: 4})
	readers := make([]*bpf.Reader, 2)
	for i := range readers {
		var err error
		if readers[i], err = bpf.NewReader(d.maps.Map(i)); err != nil {
			t.Fatal(err)
		}
	}
	rnd := rand.New(rand.NewPCG(2, 2))
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	lost := uint64(0)
	for range rounds {
		var want [2][][]byte
		var sent [][]byte
		for range 1 + rnd.IntN(60) {
			data := make([]byte, rnd.IntN(400))
			for i := range data {
				data[i] = byte(rnd.Uint32())
			}
			addr, _ := d.buffer(data)
			sent = append(sent, data)
			if len(sent)%2 == 0 {
				d.later(bpf.FnPerfEventOutput, 0, d.mapAddr(1), 0xffffffff, addr, uint64(len(data)))
			} else {
				d.later(bpf.FnRingbufOutput, d.mapAddr(0), addr, uint64(len(data)), 0)
			}
		}
		for i, a := range d.run() {
			ring := (i + 1) % 2 // the second is for perf
			ring = 1 - ring
			switch {
			case a == 0:
				want[ring] = append(want[ring], sent[i])
			case ring == 0 && a == errno(bpf.EAGAIN), ring == 1 && a == errno(bpf.ENOSPC):
				lost++
			default:
				t.Fatalf("output answers %d", int64(a))
			}
		}
		for i, r := range readers {
			for _, w := range want[i] {
				got, ok, err := r.Read()
				if err != nil || !ok || !bytes.Equal(got.Data, w) {
					t.Fatalf("read %x, %v, %v; want %x", got.Data, ok, err, w)
				}
			}
			if got, ok, err := r.Read(); ok || err != nil {
				t.Fatalf("one record too much: %x %v", got.Data, err)
			}
		}
	}
	if n := readers[0].Lost() + readers[1].Lost(); n != lost || n == 0 {
		t.Errorf("%d lost, counted %d", lost, n)
	}
	for _, size := range []uint64{bpf.MinRing - layout.RecordHeader + 1, bpf.MinRing, 1 << 40} {
		if a := d.one(bpf.FnRingbufOutput, d.mapAddr(0), 0, size, 0); a != errno(bpf.E2BIG) {
			t.Errorf("%d bytes for a ring of %d: %d", size, bpf.MinRing, int64(a))
		}
		if a := d.one(bpf.FnRingbufReserve, d.mapAddr(0), size, 0); a != 0 {
			t.Errorf("%d bytes reserved in a ring of %d: %#x", size, bpf.MinRing, a)
		}
	}
	if a := d.one(bpf.FnPerfEventOutput, 0, d.mapAddr(1), 1<<32, 0, 0); a != errno(bpf.EINVAL) {
		t.Errorf("unknown flags: %d", int64(a))
	}
}

// TestSmallHelpers are those that read what the controller has put there.
func TestSmallHelpers(t *testing.T) {
	d := newDriver(t, bpf.TraceMap())
	d.seg.SetUser(1000, 100)
	d.seg.SetClock(jit.Clock{Base: 1 << 40, Mult: 3 << 20, Shift: 22}, 12345)
	d.seg.SetTrace(arch.Addr(d.mapAddr(0)))
	if a := d.one(bpf.FnGetCurrentUidGid); a != 100<<32|1000 {
		t.Errorf("uid and gid %#x", a)
	}
	for _, size := range []int{1, 4, 5, 16, 40} {
		addr, mem := d.buffer(bytes.Repeat([]byte{0xff}, size))
		a := d.one(bpf.FnGetCurrentComm, addr, uint64(size))
		want := make([]byte, size)
		copy(want[:size-1], "host")
		if a != 0 || !bytes.Equal(mem, want) {
			t.Errorf("comm in %d bytes: %d %q", size, int64(a), mem)
		}
	}
	for i := 0; i < 4; i++ {
		d.later(bpf.FnKtimeGetNs)
		d.later(bpf.FnKtimeGetBootNs)
		d.later(bpf.FnGetPrandomU32)
	}
	answers := d.run()
	for i := 0; i < len(answers); i += 3 {
		if i > 0 && (answers[i] < answers[i-3] || answers[i+2] == answers[i-1]) || answers[i] < 1<<40 || answers[i+1] < answers[i]+12345 || answers[i+2]>>32 != 0 {
			t.Errorf("time and chance: %v", answers)
		}
	}

	reader, err := bpf.NewReader(d.maps.Map(0))
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"hello %d %d %d\n\x00", strings.Repeat("x", bpf.MaxPrintk+5) + "\x00"} {
		addr, _ := d.buffer([]byte(format))
		if a := d.one(bpf.FnTracePrintk, addr, uint64(len(format)), 11, 22, 33); a != uint64(len(format)) {
			t.Errorf("trace_printk answers %d", int64(a))
		}
		rec, ok, err := reader.Read()
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		p, err := bpf.ParsePrintk(rec.Data)
		if want := strings.TrimRight(format[:min(len(format), bpf.MaxPrintk)], "\x00"); err != nil || p.Format != want || !slices.Equal(p.Args, []uint64{11, 22, 33}) || p.Thread != uint32(d.pid) {
			t.Errorf("%+v %v", p, err)
		}
	}
}

// A walk gives what the interpreter's gives: all elements of maps of each kind.
func TestMapWalk(t *testing.T) {
	d := newDriver(t,
		&bpf.MapSpec{Name: "hash", Type: bpf.Hash, KeySize: 12, ValueSize: 8, MaxEntries: 20},
		&bpf.MapSpec{Name: "threads", Type: bpf.PerCPUHash, KeySize: 3, ValueSize: 16, MaxEntries: 5},
		&bpf.MapSpec{Name: "array", Type: bpf.Array, KeySize: 4, ValueSize: 24, MaxEntries: 7})
	for i := range 3 {
		m := d.maps.Map(i)
		for n := range 5 {
			key := make([]byte, m.Spec.KeySize)
			key[0] = byte(n)
			if err := m.Update(key, bytes.Repeat([]byte{byte(n)}, int(m.Spec.ValueSize)), bpf.UpdateAny); err != nil {
				t.Fatal(err)
			}
		}
		position := make([]byte, 8)
		found := 0
		for key, values := range m.All() {
			at, where := d.buffer(position)
			to, got := d.buffer(make([]byte, m.Spec.KeySize))
			addr := d.one(bpf.FnMapWalk, d.mapAddr(i), at, to)
			off := addr - d.maps.Base
			value := d.seg.Extra()[off:][:m.Spec.ValueSize]
			if addr == 0 || !bytes.Equal(got, key) || !bytes.Equal(value, values[0]) {
				t.Errorf("%s: %x at %#x, want %x %x", m.Spec.Name, got, addr, key, values[0])
			}
			position = bytes.Clone(where)
			found++
		}
		at, _ := d.buffer(position)
		to, _ := d.buffer(make([]byte, m.Spec.KeySize))
		if addr := d.one(bpf.FnMapWalk, d.mapAddr(i), at, to); addr != 0 || found < 5 {
			t.Errorf("%s: behind the last of %d there is %#x", m.Spec.Name, found, addr)
		}
	}
}

// Texts that printed lines ask for are read when they are printed.
func TestPrintTexts(t *testing.T) {
	d := newDriver(t, bpf.TraceMap())
	d.seg.SetTrace(arch.Addr(d.mapAddr(0)))
	reader, err := bpf.NewReader(d.maps.Map(0))
	if err != nil {
		t.Fatal(err)
	}
	const one, long = 101, 102 // stand for the addresses of these texts
	for _, tt := range []struct {
		format string
		values []uint64
		want   string
	}{
		{"%s", []uint64{one}, "one"},
		{"%d %-5s|%5.3lld%%|%pks", []uint64{7, one, 8, one}, "7 one  |  008%|one"},
		{"%s", []uint64{long}, strings.Repeat("x", bpf.PrintkText-1)},
		{"%s and %s", []uint64{one}, "one and %s"},
		{"%pus %px %s%", []uint64{one, 16, one}, "one 0x10 one%"},
		{strings.Repeat("%s", 12), []uint64{one, one, one, one, one, one, one, one, one, one, one, one}, strings.Repeat("one", 12)},
		{strings.Repeat("%s", 14), slices.Repeat([]uint64{one}, 14), strings.Repeat("one", 12) + "%s%s"},
	} {
		format, _ := d.buffer([]byte(tt.format + "\x00"))
		values := make([]byte, 8*len(tt.values))
		for i, v := range tt.values {
			switch v {
			case one:
				v, _ = d.buffer([]byte("one\x00"))
			case long:
				v, _ = d.buffer([]byte(strings.Repeat("x", 300) + "\x00"))
			}
			binary.LittleEndian.PutUint64(values[8*i:], v)
		}
		at, _ := d.buffer(values)
		a := d.one(bpf.FnTraceVprintk, format, uint64(len(tt.format)+1), at, uint64(len(values)))
		if a != uint64(len(tt.format)+1) {
			t.Errorf("%q: it answers %d", tt.format, int64(a))
		}
		rec, ok, err := reader.Read()
		if err != nil || !ok {
			t.Fatal(tt.format, ok, err)
		}
		p, err := bpf.ParsePrintk(rec.Data)
		if err != nil || p.String() != tt.want {
			t.Errorf("%q: %q, %v, want %q", tt.format, p.String(), err, tt.want)
		}
	}
}

// TestCPU compares with what the kernel says, on each CPU in turn.
func TestCPU(t *testing.T) {
	d := newDriver(t)
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(d.pid, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range len(all) * 64 {
		if !all.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(d.pid, &one); err != nil {
			t.Fatal(err)
		}
		if a := d.one(bpf.FnGetSmpProcessorID); a != uint64(cpu) {
			t.Errorf("CPU %d is called %d", cpu, a)
		}
	}
}

// mended lets a thread under ptrace do what was listed, and mends its faults.
func (d *driver) mended(s *stepper) (answers []uint64, faults int) {
	d.Helper()
	if foreign() {
		return d.called()
	}
	b := d.list()
	start, stack := s.entry("f_lea", rand.New(rand.NewPCG(1, 2)))
	start[arch.FLAGS] = start[arch.FLAGS]&^directionFlag | d.flags
	s.poke(s.stack, stack)
	s.setRegs(&start)
	for {
		s.do(unix.PtraceCont(s.pid, 0))
		sig := s.wait()
		r := s.regs()
		if sig == unix.SIGTRAP && r[arch.IP] == uint64(s.trap())+1 {
			break
		}
		to, ok := s.area.Fixup(r.Addr(arch.IP))
		if !ok || sig != unix.SIGSEGV && sig != unix.SIGBUS {
			s.Fatalf("%v at %#x", sig, r[arch.IP])
		}
		faults++
		r[arch.IP] = uint64(to)
		s.setRegs(&r)
	}
	for i := range d.calls {
		answers = append(answers, binary.LittleEndian.Uint64(b[8+56*i+48:]))
	}
	d.calls, d.buffers = nil, 0
	return answers, faults
}

// directionFlag has rep go backwards. C has it clear, a program's own assembly may not.
const directionFlag = 0x400

// TestBackwards has a program call helpers that has set its direction flag.
func TestBackwards(t *testing.T) {
	specs := []*bpf.MapSpec{
		{Name: "hash", Type: bpf.Hash, KeySize: 21, ValueSize: 24, MaxEntries: 8},
		{Name: "each", Type: bpf.PerCPUHash, KeySize: 5, ValueSize: 16, MaxEntries: 8},
	}
	d := newDriver(t, specs...)
	d.flags = directionFlag
	s := d.step()
	memory := make([]byte, d.maps.Size)
	mirror, err := d.maps.Layout.Bind(memory, d.maps.Base)
	if err == nil {
		err = mirror.Init()
	}
	if err != nil {
		t.Fatal(err)
	}
	// Keys that only their ends tell apart, the second one written twice: it is found again.
	keys, value := [][]byte{[]byte("a key of more than one word"), []byte("a key of more than two words")}, []byte("and a value of three words")
	v, _ := d.buffer(value)
	for _, key := range [][]byte{keys[0], keys[1], keys[1]} {
		k, _ := d.buffer(key)
		for i := range specs {
			d.later(bpf.FnMapUpdateElem, d.mapAddr(i), k, v, 0)
		}
		d.later(bpf.FnMapLookupElem, d.mapAddr(0), k)
		if err := mirror.Map(0).Update(key[:21], value[:24], 0); err != nil {
			t.Fatal(err)
		}
	}
	answers, _ := d.mended(s)
	for i, a := range answers {
		if lookup := i%3 == 2; lookup && a-d.maps.Base >= d.maps.Size || !lookup && a != 0 {
			t.Errorf("answers %x", answers)
		}
	}
	if answers[5] == answers[2] || answers[8] != answers[5] {
		t.Errorf("the keys are found at %x, %x and %x", answers[2], answers[5], answers[8])
	}
	if have := d.seg.Extra()[d.maps.Offs[0]:d.maps.Offs[1]]; !bytes.Equal(have, memory[d.maps.Offs[0]:d.maps.Offs[1]]) {
		t.Error("the memory of the map is not what its keys and values make it")
	}
}

// TestKernelReaders has a kernel's functions do it, which are played by stubs here: what they are given,
// and what becomes of their answers.
func TestKernelReaders(t *testing.T) {
	d := newDriver(t)
	stub := func(answer int32) arch.Addr {
		a := x86code.NewAsm(d.code(64), false)
		a.Put(0x48, 0x89, 0x37)       // mov [rdi], rsi
		a.Put(0x48, 0x89, 0x57, 0x08) // mov [rdi+8], rdx
		a.Put(binary.LittleEndian.AppendUint32([]byte{0x48, 0xc7, 0xc0}, uint32(answer))...)
		a.Put(0xba, 1, 0, 0, 0) // mov edx, 1: like all that C does not keep
		a.Put(0xb9, 1, 0, 0, 0)
		a.Put(0xbf, 1, 0, 0, 0)
		a.Ret()
		d.put(a.Base, a.Code)
		return a.Base
	}
	target := &inject.Target{Machine: hostMachine, Segment: d.seg, Readers: &inject.Readers{Kernel: stub(0), KernelText: stub(7), User: stub(-34), UserText: stub(0)}}
	d.area = target.Area(d.code(target.AreaSize()))
	d.put(d.area.Addr, d.area.Image())
	s := d.step()
	filled := bytes.Repeat([]byte{0xee}, 48)
	const high, low = 1 << 63, 0x1234
	tests := []struct {
		helper     int32
		size, from uint64
		answer     uint64
		served     bool // else zeros
	}{
		{bpf.FnProbeRead, 20, high, 0, true},
		{bpf.FnProbeRead, 20, low, errno(bpf.EFAULT), false},
		{bpf.FnProbeReadKernel, 20, low, 0, true},
		{bpf.FnProbeReadUser, 20, high, errno(bpf.EFAULT), false},
		{bpf.FnProbeReadStr, 20, high, 7, true},
		{bpf.FnProbeReadStr, 20, low, 1, true},
		{bpf.FnProbeReadUserStr, 20, high, 1, true},
		{bpf.FnProbeReadUserStr, 0, high, 0, true},
		{bpf.FnProbeReadKernelStr, 20, low, 7, true},
	}
	for i, tt := range tests {
		addr, mem := d.buffer(filled)
		d.later(tt.helper, addr, tt.size, tt.from)
		answers, _ := d.mended(s)
		want := bytes.Clone(filled)
		if tt.served {
			binary.LittleEndian.PutUint64(want, tt.from)
			binary.LittleEndian.PutUint64(want[8:], tt.size)
		} else {
			clear(want[:tt.size])
		}
		if answers[0] != tt.answer || !bytes.Equal(mem, want) {
			t.Errorf("%d: answer %d, % x; want %d, % x", i, int64(answers[0]), mem, int64(tt.answer), want)
		}
	}
}

// TestStackID walks chains of frame pointers that end in all possible ways.
func TestStackID(t *testing.T) {
	const depth = 6
	spec := &bpf.MapSpec{Name: "stacks", Type: bpf.StackTrace, KeySize: 4, ValueSize: 8 * depth, MaxEntries: 64}
	d := newDriver(t, spec)
	s := d.step()
	var words [40]uint64
	chain := bufferAt + 1<<20 // frames of two words: the next frame, the return address
	base := uint64(d.seg.ExtraAddr()) + uint64(chain)
	context := func(ip, fp, sp uint64) uint64 {
		c := make([]uint64, hostMachine.Code.Words)
		if foreign() {
			c[hostMachine.PC], c[hostMachine.FP], c[hostMachine.LR] = ip, fp, 0x1007
		} else {
			c[x86code.WordIP], c[x86code.WordFP], c[x86code.WordSP] = ip, fp, sp
		}
		b := make([]byte, 8*len(c))
		for i, w := range c {
			binary.LittleEndian.PutUint64(b[8*i:], w)
		}
		addr, _ := d.buffer(b)
		return addr
	}
	size := hostMachine.PtrSize
	frame := uint64(2 * size)
	set := func() {
		for i, w := range words {
			hostMachine.PutWord(d.seg.Extra()[chain+size*i:], w)
		}
	}
	for i := range 20 {
		words[2*i], words[2*i+1] = base+frame*uint64(i+1), 0x1000+uint64(i)
	}
	words[2*12+1] = 0  // no return address
	words[2*15] = base // down again
	words[2*17] = 8    // not there
	words[2*18] = base + 3
	set()
	entry := uint64(bpf.StackEntry)
	tests := []struct {
		fp     uint64
		skip   uint64
		want   []uint64
		answer uint64
	}{
		{0, entry, []uint64{0xabc, 0x1007}, 0},
		{base, entry, []uint64{0xabc, 0x1007, 0x1000, 0x1001, 0x1002, 0x1003}, 0},
		{base, entry | 2, []uint64{0x1000, 0x1001, 0x1002, 0x1003, 0x1004, 0x1005}, 0},
		{base + frame*17, entry | 1, []uint64{0x1007, 0x1011}, 0},
		{0, 0, []uint64{0xabc}, 0},
		{0, 1, nil, errno(bpf.EFAULT)},
		{base, 0, []uint64{0xabc, 0x1000, 0x1001, 0x1002, 0x1003, 0x1004}, 0},
		{base, 2, []uint64{0x1001, 0x1002, 0x1003, 0x1004, 0x1005, 0x1006}, 0},
		{base + frame*11, 0, []uint64{0xabc, 0x100b}, 0},
		{base + frame*14, 0, []uint64{0xabc, 0x100e, 0x100f}, 0},
		{base + frame*17, 0, []uint64{0xabc, 0x1011}, 0},
		{base + frame*18, 0, []uint64{0xabc, 0x1012}, 0},
		{16, 0, []uint64{0xabc}, 0},
		{0, 1 << 20, nil, errno(bpf.EINVAL)},
	}
	ids := map[uint64]string{}
	for range 2 { // the second time each is there already
		for i, tt := range tests {
			d.later(bpf.FnGetStackid, context(0xabc, tt.fp, base+frame*7+uint64(size)), d.mapAddr(0), tt.skip)
			answers, _ := d.mended(s)
			if tt.answer != 0 {
				if answers[0] != tt.answer {
					t.Errorf("%d: answer %d", i, int64(answers[0]))
				}
				continue
			}
			value, err := d.maps.Map(0).Lookup(binary.LittleEndian.AppendUint32(nil, uint32(answers[0])))
			if err != nil || int64(answers[0]) < 0 {
				t.Fatal(i, int64(answers[0]), err)
			}
			var got []uint64
			for ; len(value) > 0 && binary.LittleEndian.Uint64(value) != 0; value = value[8:] {
				got = append(got, binary.LittleEndian.Uint64(value))
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%d: %x, want %x", i, got, tt.want)
			}
			if was := ids[answers[0]]; was != "" && was != fmt.Sprint(got) {
				t.Errorf("%d: id %d is also %s", i, answers[0], was)
			}
			ids[answers[0]] = fmt.Sprint(got)
		}
	}
	if n := len(ids); n != 11 {
		t.Errorf("%d ids for 11 traces: %v", n, ids)
	}
}
