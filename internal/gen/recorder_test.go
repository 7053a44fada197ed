package gen_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/bpf/verify"
	"kprobe/event"
	"kprobe/internal/gen"
)

// reference captures as the words of the definition say, without a program.
type reference struct {
	ctx  []byte
	read func(uint64, []byte) error
	comm string
}

func (x *reference) number(addr uint64, size int) (uint64, bool) {
	var b [8]byte
	err := x.read(addr, b[:size])
	return binary.LittleEndian.Uint64(b[:]), err == nil
}

func (x *reference) text(addr uint64) (string, bool) {
	var out []byte
	for len(out) < 4095 {
		c, ok := x.number(addr+uint64(len(out)), 1)
		if !ok {
			return "", false
		}
		if c == 0 {
			break
		}
		out = append(out, byte(c))
	}
	return string(out), true
}

func (x *reference) fetch(f *event.Load) gen.Raw {
	if f.Source == event.LoadComm {
		return gen.Raw{Text: x.comm}
	}
	elem := func(i int) (r gen.Raw) {
		word, ok := f.N, true
		if f.Source == event.LoadThread {
			word = 1000<<32 | 1001
		} else if f.Source == event.LoadReg {
			word = binary.LittleEndian.Uint64(x.ctx[8*slices.Index(bpf.AMD64.Regs, arch.AMD64.RegNames[f.Reg]):])
		}
		for _, hop := range f.Hops {
			if word, ok = x.number(word+hop, 8); !ok {
				return gen.Raw{Fault: true}
			}
		}
		switch f.As {
		case event.LoadWord:
			r.Bits = word + f.Off
		case event.LoadNumber:
			r.Bits, ok = x.number(word+f.Off+uint64(i*f.Size), f.Size)
		case event.LoadTextAt:
			r.Text, ok = x.text(word + f.Off)
		case event.LoadTextPtr:
			if word, ok = x.number(word+f.Off+uint64(8*i), 8); ok {
				r.Text, ok = x.text(word)
			}
		}
		if !ok {
			return gen.Raw{Fault: true}
		}
		return r
	}
	if f.Count == 0 {
		return elem(0)
	}
	var r gen.Raw
	for i := range f.Count {
		r.Elems = append(r.Elems, elem(i))
	}
	return r
}

func (x *reference) holds(f *gen.Filter, got []gen.Raw) bool {
	switch f.Op {
	case gen.FilterAnd:
		return x.holds(f.Left, got) && x.holds(f.Right, got)
	case gen.FilterOr:
		return x.holds(f.Left, got) || x.holds(f.Right, got)
	case gen.FilterNot:
		return !x.holds(f.Left, got)
	}
	v := got[f.Arg]
	if v.Fault {
		return false
	}
	if f.IsText {
		return (v.Text == f.Text) == (f.Op == gen.FilterEq)
	}
	a := v.Bits
	if n := 64 - 8*f.Bytes; f.Bytes != 0 && f.Signed {
		a = uint64(int64(a<<n) >> n)
	} else if f.Bytes != 0 {
		a = a << n >> n
	}
	a >>= f.Shift
	if f.Mask != 0 {
		a &= f.Mask
	}
	switch {
	case f.Op == gen.FilterEq:
		return a == f.N
	case f.Op == gen.FilterNotEq:
		return a != f.N
	case f.Op == gen.FilterGreater && f.Signed:
		return int64(a) > int64(f.N)
	case f.Op == gen.FilterGreater:
		return a > f.N
	case f.Op == gen.FilterGreaterEq && f.Signed:
		return int64(a) >= int64(f.N)
	case f.Op == gen.FilterGreaterEq:
		return a >= f.N
	case f.Op == gen.FilterBits:
		return a&f.N != 0
	case f.Op == gen.FilterLess && f.Signed:
		return int64(a) < int64(f.N)
	case f.Op == gen.FilterLess:
		return a < f.N
	case f.Signed:
		return int64(a) <= int64(f.N)
	}
	return a <= f.N
}

// memory of the target: pages at 0x10000 and 0x11000, full of pointers into
// themselves, numbers and texts; nothing else.
func pages(r *rand.Rand) func(uint64, []byte) error {
	mem := make([]byte, 8192)
	for i := range mem {
		mem[i] = byte('a' + r.IntN(26))
		if r.IntN(12) == 0 {
			mem[i] = 0
		}
	}
	for range 500 {
		at := uint64(r.IntN(len(mem)-8)) &^ 7
		binary.LittleEndian.PutUint64(mem[at:], 0x10000+uint64(r.IntN(8300)))
	}
	return func(addr uint64, p []byte) error {
		if off := addr - 0x10000; off <= 8192 && uint64(len(p)) <= 8192-off {
			copy(p, mem[off:])
			return nil
		}
		return fmt.Errorf("nothing at %#x", addr)
	}
}

func randomFetch(r *rand.Rand) (f event.Load) {
	switch r.IntN(8) {
	case 0:
		return event.Load{Source: event.LoadComm}
	case 1:
		if r.IntN(4) == 0 {
			return event.Load{Source: event.LoadThread}
		}
		f.N = 0x10000 + uint64(r.IntN(8300))
	case 2:
		f.N = r.Uint64()
	default:
		f.Source, f.Reg = event.LoadReg, arch.Reg(slices.Index(arch.AMD64.RegNames, bpf.AMD64.Regs[r.IntN(21)]))
	}
	for range r.IntN(3) {
		f.Hops = append(f.Hops, uint64(int64(r.IntN(64)-16)))
	}
	f.As = event.LoadAs(r.IntN(4))
	f.Off = uint64(int64(r.IntN(40) - 8))
	f.Size = 1 << r.IntN(4)
	if f.As != event.LoadWord && f.As != event.LoadTextAt && r.IntN(3) == 0 {
		f.Count = 1 + r.IntN(6)
		if r.IntN(10) == 0 {
			f.Count = 64
		}
	}
	if f.As == event.LoadWord {
		f.Size = 0
	}
	return f
}

func randomFilter(r *rand.Rand, args []event.Load, depth int) *gen.Filter {
	if op := gen.FilterOp(r.IntN(3)); depth > 0 && r.IntN(3) > 0 {
		f := &gen.Filter{Op: op, Left: randomFilter(r, args, depth-1)}
		if op != gen.FilterNot {
			f.Right = randomFilter(r, args, depth-1)
		}
		return f
	}
	f := &gen.Filter{Op: gen.FilterEq + gen.FilterOp(r.IntN(7)), Arg: r.IntN(len(args)), N: uint64(r.IntN(3)) * 0x10000, Signed: r.IntN(2) == 0,
		Bytes: []int{0, 1, 2, 4, 8}[r.IntN(5)]}
	if r.IntN(4) == 0 {
		f.Signed, f.Shift, f.Mask = false, uint(r.IntN(5)), 15
	}
	if r.IntN(3) == 0 {
		f.N = uint64(r.IntN(300)) - 150
	}
	for args[f.Arg].Count != 0 {
		f.Arg = r.IntN(len(args))
	}
	if a := args[f.Arg]; a.Source == event.LoadComm || a.As == event.LoadTextAt || a.As == event.LoadTextPtr {
		f.Op, f.IsText, f.Text = gen.FilterEq+gen.FilterOp(r.IntN(2)), true, []string{"redis-server", "", "redis", strings.Repeat("x", 255)}[r.IntN(4)]
	}
	return f
}

// A generated program records what the definition's words say, for any definition.
func TestGenerateAgainstReference(t *testing.T) {
	n := 1500
	if testing.Short() {
		n = 150
	}
	recorded, dropped, faults := 0, 0, 0
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 4))
		tr := gen.Trace{Name: "trace", Fields: gen.Fields(r.IntN(16)), Args: []event.Load{{Source: event.LoadReg, Reg: arch.R10}}}
		for range r.IntN(8) {
			tr.Args = append(tr.Args, randomFetch(r))
		}
		if r.IntN(2) == 0 {
			tr.Filter = randomFilter(r, tr.Args, 3)
		}
		rec, err := gen.Generate(tr)
		if err != nil && strings.Contains(err.Error(), "texts in a record: 120 are possible") {
			continue
		} else if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		proof, err := verify.Program(rec.Program)
		if err != nil {
			t.Fatalf("seed %d: %+v\n%v\n%s", seed, tr, err, bpftest.Listing(rec.Program))
		}
		vm := bpftest.Machine(t, proof)
		vm.Env.Read = pages(r)
		ring, err := bpf.NewReader(vm.Segment.Map(gen.RingIndex))
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			ctx := make([]byte, 168)
			for i := 0; i < 168; i += 8 {
				binary.LittleEndian.PutUint64(ctx[i:], 0x10000+uint64(r.IntN(8400)))
			}
			x := &reference{ctx, vm.Env.Read, vm.Env.Comm}
			var want []gen.Raw
			for i := range tr.Args {
				want = append(want, x.fetch(&tr.Args[i]))
				if want[i].Fault {
					faults++
				}
			}
			vm.Env.Now = func(int32) uint64 { return 12345 }
			if _, err := vm.Run(ctx); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			data, ok, err := ring.Read()
			if err != nil {
				t.Fatal(err)
			}
			if keep := tr.Filter == nil || x.holds(tr.Filter, want); ok != keep {
				t.Fatalf("seed %d: recorded: %v, want %v (%+v of %+v)\n%s", seed, ok, keep, tr.Filter, want, bpftest.Listing(rec.Program))
			}
			if !ok {
				dropped++
				continue
			}
			recorded++
			got, err := rec.Decode(data.Data)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Args, want) {
				t.Fatalf("seed %d: %+v\ngot  %+v\nwant %+v\n%s", seed, tr.Args, got.Args, want, bpftest.Listing(rec.Program))
			}
			field := func(bit gen.Fields, v uint64) uint64 {
				if tr.Fields&bit == 0 {
					return 0
				}
				return v
			}
			if got.Time != field(gen.FieldTime, 12345) || got.Thread != field(gen.FieldThread, 1000<<32|1001) ||
				got.Cookie != field(gen.FieldCookie, 77) || uint64(got.CPU) != field(gen.FieldCPU, 3) {
				t.Fatalf("seed %d: %+v", seed, got)
			}
		}
	}
	if recorded < n || dropped < n/10 || faults < n/10 {
		t.Errorf("%d recorded, %d dropped, %d faults: the definitions are not varied enough", recorded, dropped, faults)
	}
}

// The shortest way is taken: straight into the ring where nothing may be dropped,
// with no read of memory where there are registers only.
func TestGenerateGolden(t *testing.T) {
	rec, err := gen.Generate(gen.Trace{Name: "f", Fields: gen.FieldTime, Args: []event.Load{{Source: event.LoadReg, Reg: arch.DI}}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `   0  r6 = r1
   1  r1 = map 0 ll
   3  r2 = 16
   4  r3 = 0
   5  call ringbuf_reserve
   6  if r0 == 0 goto +8
   7  r8 = r0
   8  r3 = *(u64 *)(r6 +112)
   9  *(u64 *)(r8 +8) = r3
  10  call ktime_get_ns
  11  *(u64 *)(r8 +0) = r0
  12  r1 = r8
  13  r2 = 0
  14  call ringbuf_submit
  15  r0 = 0
  16  exit
`
	got := bpftest.Listing(rec.Program)
	if got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

// What a return wants of its call's beginning is one register each, put aside there once, wherever it is asked for.
func TestGenerateEntryGolden(t *testing.T) {
	di, dx := event.Load{Source: event.LoadEntry, Reg: arch.DI}, event.Load{Source: event.LoadEntry, Reg: arch.DX}
	text := event.Load{Source: event.LoadReg, Reg: arch.AX, As: event.LoadCounted, Most: 8, Length: &dx}
	text.Guards = []event.LoadGuard{{Of: &di}}
	rec, err := gen.Generate(gen.Trace{Name: "f", Kind: bpf.Kretprobe, Args: []event.Load{di, text}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `   0  r6 = r1
   1  r2 = 16
   2  call call_data
   3  r1 = *(u64 *)(r6 +112)
   4  *(u64 *)(r0 +0) = r1
   5  r1 = *(u64 *)(r6 +96)
   6  *(u64 *)(r0 +8) = r1
   7  r0 = 0
   8  exit
`
	if got := bpftest.Listing(rec.Entry); got != want || rec.Data() != 16 {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
	if _, err := verify.Program(rec.Program); err != nil {
		t.Error(err)
	}
	rec, err = gen.Generate(gen.Trace{Name: "f", Kind: bpf.Kprobe, Args: []event.Load{di}})
	if err != nil || rec.Entry != nil || rec.Data() != 0 {
		t.Errorf("at an entry: %v, %v", rec.Entry, err)
	}
}

func TestGenerateRefuses(t *testing.T) {
	reg := []event.Load{{Source: event.LoadReg, Reg: arch.R14}}
	for _, tt := range []struct {
		t    gen.Trace
		want string
	}{
		{gen.Trace{Args: []event.Load{{Source: event.LoadReg, Reg: arch.DS}}}, "register ds is not in a program's context"},
		{gen.Trace{Args: []event.Load{{Source: event.LoadReg, Reg: 200}}}, "register ? is not in a program's context"},
		{gen.Trace{Args: []event.Load{{Length: &event.Load{Source: event.LoadData}}}}, "a watchpoint's data address is not known"},
		{gen.Trace{Args: []event.Load{{Guards: []event.LoadGuard{{Of: &event.Load{}, Minus: &event.Load{Source: event.LoadEntry, Reg: arch.DS}}}}}, Kind: bpf.Kretprobe}, "register ds is not in a program's context"},
		{gen.Trace{Arch: arch.S390X}, "programs are not made for s390x"},
		{gen.Trace{Args: []event.Load{{As: event.LoadNumber, Size: 3}}}, "a number of 3 bytes"},
		{gen.Trace{Args: []event.Load{{Count: 3}}}, "an array that is not in memory"},
		{gen.Trace{Args: []event.Load{{As: event.LoadTextPtr, Count: 64}}, Ring: 65536}, "a ring of 65536 holds 32768"},
		{gen.Trace{Args: reg, Filter: &gen.Filter{Op: gen.FilterEq, Arg: 3}}, "filter: argument 3 is not there"},
		{gen.Trace{Args: reg, Filter: &gen.Filter{Op: gen.FilterEq, IsText: true}}, "not of the kind that it is compared with"},
		{gen.Trace{Args: reg, Filter: &gen.Filter{Op: gen.FilterAnd}}, "an operand is missing"},
	} {
		if _, err := gen.Generate(tt.t); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	rec, err := gen.Generate(gen.Trace{Fields: 15, Args: []event.Load{{Source: event.LoadComm}, {As: event.LoadTextPtr, Count: 3}, {Source: event.LoadReg, Reg: arch.R12}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(make([]byte, 80))
	f.Add([]byte(strings.Repeat("\x50\x00\x00\x00\x04\x00\x00\x00", 12)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := rec.Decode(b); err == nil && len(h.Args) != 3 {
			t.Errorf("%+v", h)
		}
	})
}
