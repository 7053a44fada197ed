package inject_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/inject"
	x86code "kprobe/internal/inject/x86"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// BenchmarkDetours is nanoseconds of a call of f_lea with different things at
// its entry, and how many times the floor's that is: a detour made by hand for this
// very place. All are measured in turns, since machines have moods.
func BenchmarkDetours(b *testing.B) {
	h := startHost(b, segment.Layout{Threads: 8, Counters: 16, Away: 1 << 10, Extra: 4 << 20})
	maps := h.maps(hashSpec(), ringSpec())
	h.seg.Assign(segment.Thread{Key: h.key(0), TID: h.pid, StackHigh: 1 << 47})
	count := func(a *x86code.Asm) { a.Inc(arch.R12, segment.Counter(9)) }
	all := h.program(count)
	none := h.program(count)
	none.Clobbers, none.Context = 0, 0
	some := h.program(count)
	some.Context, some.Clobbers = 1<<x86code.WordOf[arch.DI], jit.HelperClobbers
	tight := some
	tight.Context = 1<<21 - 1
	loose := all
	loose.Context = 0
	rows := []struct {
		name, floor string
		detour      *inject.Detour
	}{
		{"count", "floor_count", h.detour("f_lea", inject.Detour{Hits: 3, Missed: inject.NoCounter})},
		{"count, flags dead", "floor_count", h.detour("f_lea", inject.Detour{Hits: 3, Missed: inject.NoCounter, DeadFlags: true})},
		{"count, flags and 2 registers dead", "floor_count", h.detour("f_lea", inject.Detour{Hits: 3, Missed: inject.NoCounter, DeadFlags: true, Dead: arch.SetOf(arch.AX) | arch.SetOf(arch.R11)})},
		{"program, full frame", "floor_registers", h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Programs: []inject.Program{all}})},
		{"program, full ctx, few clobbers", "floor_registers", h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Programs: []inject.Program{tight}})},
		{"program, no ctx, all clobbers", "floor_registers", h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Programs: []inject.Program{loose}})},
		{"program that reads an argument", "floor_registers", h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Programs: []inject.Program{some}})},
		{"program that counts, nothing saved", "floor_registers", h.detour("f_lea", inject.Detour{Hits: inject.NoCounter, Missed: 4, Programs: []inject.Program{none}})},
		{"program: 32-byte record, time", "floor_record", h.detour("f_lea", inject.Detour{Hits: inject.NoCounter, Missed: 4, Programs: []inject.Program{h.compiled(recordArguments, maps.Layout)}})},
		{"program: hash count by argument", "floor_registers", h.detour("f_lea", inject.Detour{Hits: inject.NoCounter, Missed: 4, Programs: []inject.Program{h.compiled(countByArgument, maps.Layout)}})},
		{"return, counted, flags dead", "floor_return", h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, DeadFlags: true, Return: &inject.Return{Max: 50, Missed: 7, Hits: 8}})},
		{"return, counted", "floor_return", h.detour("f_lea", inject.Detour{Hits: 3, Missed: 4, Return: &inject.Return{Max: 50, Missed: 7, Hits: 8}})},
	}
	original := make([]byte, 8)
	copy(original, []byte{0x48, 0x8d, 0x84, 0x37})
	reader, err := bpf.NewReader(maps.Map(1))
	if err != nil {
		b.Fatal(err)
	}
	// drain reads the ring as fast as it is written, which is what the floor's, that
	// is never full, stands for.
	drain := func() {
		for {
			if _, ok, err := reader.Read(); !ok || err != nil {
				return
			}
		}
	}
	measure := func(code []byte, few bool) float64 {
		h.put(h.addr["f_lea"], code)
		n, times := 200_000, 60
		if few { // as many as a ring or a map holds
			n, times = 1000, 1500
		}
		least := math.Inf(1) // what disturbs only adds
		for range times {
			drain()
			_, t := h.call("f_lea", 0, n, 0, 5)
			least = min(least, t)
		}
		return least
	}
	jump := func(to arch.Addr) []byte {
		code, err := amd64.ISA.Jump(h.addr["f_lea"], to)
		if err != nil {
			b.Fatal(err)
		}
		return code
	}
	for _, r := range rows {
		code, err := r.detour.Code()
		if err != nil {
			b.Fatal(err)
		}
		h.put(r.detour.At, code)
	}
	for b.Loop() {
		fmt.Printf("\n%-36s %5.2f ns\n", "no probe", measure(original, false))
		for _, r := range rows {
			few := strings.HasPrefix(r.name, "program: ")
			floor, ours := measure(jump(h.addr[r.floor]), few), measure(jump(r.detour.At), few)
			fmt.Printf("%-36s %5.2f ns   %-16s %5.2f ns   %.2f\n", r.name, ours, r.floor, floor, ours/floor)
		}
	}
}
