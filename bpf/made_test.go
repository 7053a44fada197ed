package bpf_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/bpftest"
)

// TestKinds runs programs on maps that are stored as other kinds beside what such a map is, in Go.
func TestKinds(t *testing.T) {
	for _, version := range versions {
		l := verified(t, load(t, "testdata/kinds.bpf.c", version))
		rng := rand.New(rand.NewPCG(1, 2))
		global := func(name string) uint64 {
			b, err := l.Var(name).In(l.mapOf(t, ".bss"))
			if err != nil {
				t.Fatal(err)
			}
			return binary.LittleEndian.Uint64(append(b, make([]byte, 8)...))
		}
		same := func(what string, got, want any) {
			t.Helper()
			if got != want {
				t.Fatalf("%s: %s: %v, want %v", version, what, got, want)
			}
		}
		errno := func(n int64) uint64 { return uint64(-n) }

		var queue []uint64
		for range 500 {
			id := rng.Uint64N(1000)
			if rng.IntN(2) == 0 {
				flags := rng.Uint64N(4)
				l.run(t, "push", map[string]uint64{"rdi": id, "rsi": flags})
				switch {
				case flags&1 == 1:
					same("push with flags", global("last"), errno(bpf.EINVAL))
				case len(queue) == 5 && flags == 0:
					same("push into a full queue", global("last"), errno(bpf.E2BIG))
				default:
					if len(queue) == 5 {
						queue = queue[1:]
					}
					queue = append(queue, id)
					same("push", global("last"), uint64(0))
				}
			} else {
				peek := rng.Uint64N(2)
				l.run(t, "pop", map[string]uint64{"rdi": peek})
				if len(queue) == 0 {
					same("pop of none", global("last"), errno(bpf.ENOENT))
					same("its value", global("got"), uint64(0))
					continue
				}
				same("pop", global("last"), uint64(0))
				same("its value", global("got"), queue[0])
				if peek == 0 {
					queue = queue[1:]
				}
			}
			n := 0
			for _, v := range l.mapOf(t, "jobs").All() {
				same("an element", binary.LittleEndian.Uint64(v[0]), queue[n])
				n++
			}
			same("elements", n, len(queue))
		}
		// The controller's end of the same queue.
		jobs := l.mapOf(t, "jobs")
		for len(queue) > 0 {
			v, err := jobs.Pop()
			same("pop", err, nil)
			same("its value", binary.LittleEndian.Uint64(v), queue[0])
			queue = queue[1:]
		}
		if _, err := jobs.Peek(); !errors.Is(err, bpf.ErrNotExist) {
			t.Error(err)
		}
		job := make([]byte, 24)
		for i := range uint64(6) {
			binary.LittleEndian.PutUint64(job, i)
			if err := jobs.Push(job, bpf.UpdateAny); (i == 5) != errors.Is(err, bpf.ErrFull) {
				t.Error(i, err)
			}
		}
		same("push", jobs.Push(job, bpf.UpdateExist), nil)
		l.run(t, "pop", nil)
		same("what the controller pushed", global("got"), uint64(1))

		var pile []byte
		for range 300 {
			c, what := byte(rng.IntN(256)), rng.Uint64N(4)
			l.run(t, "stack", map[string]uint64{"rdi": uint64(c), "rsi": what})
			switch {
			case what == 0 && len(pile) == 3:
				same("push onto a full stack", global("last"), errno(bpf.E2BIG))
			case what < 2:
				pile = append(pile, c)
				pile = pile[max(0, len(pile)-3):]
			case len(pile) == 0:
				same("pop of none", global("last"), errno(bpf.ENOENT))
			default:
				same("top", byte(global("top")), pile[len(pile)-1])
				if what == 2 {
					pile = pile[:len(pile)-1]
				}
			}
		}

		in := map[uint64]bool{}
		wrong := 0
		for range 200 {
			v, push := rng.Uint64(), rng.Uint64N(2)
			l.run(t, "bloom", map[string]uint64{"rdi": v, "rsi": push})
			if push == 1 {
				in[v] = true
			} else if global("last") == 0 {
				wrong++
			}
		}
		for v := range in {
			l.run(t, "bloom", map[string]uint64{"rdi": v})
			same("a value that is in", global("last"), uint64(0))
			has, err := l.mapOf(t, "seen").Has(key8(v))
			same("Has", has, true)
			same("Has", err, nil)
		}
		if wrong > 20 {
			t.Errorf("%d of 100 that are not in are told to be", wrong)
		}
		same("Push", l.mapOf(t, "seen").Push(key8(4711), 0), nil)
		l.run(t, "bloom", map[string]uint64{"rdi": 4711})
		same("what the controller pushed", global("last"), uint64(0))

		type prefix struct{ length, bits uint64 }
		cut := func(a, n uint64) prefix { return prefix{n, a & (1<<40 - 1) >> (40 - n) << (40 - n)} }
		nets := map[prefix]uint64{}
		for range 2000 {
			a := rng.Uint64N(1<<40) &^ (rng.Uint64N(2) * 0xfffffff0f0)
			n, what := rng.Uint64N(44), rng.Uint64N(4)
			l.run(t, "trie", map[string]uint64{"rdi": a, "rsi": n, "rdx": what})
			switch {
			case n > 40 && what < 2:
				same("a length that is none", global("last"), errno(bpf.EINVAL))
			case n > 40:
				same("a length that is none", global("last"), errno(bpf.ENOENT))
			case what == 0 && len(nets) >= 64 && global("last") != 0:
				same("a full trie", global("last"), errno(bpf.ENOSPC))
			case what == 0:
				same("update", global("last"), uint64(0))
				nets[cut(a, n)] = a
			case what == 1:
				want := uint64(0)
				if _, ok := nets[cut(a, n)]; !ok {
					want = errno(bpf.ENOENT)
				}
				same("delete", global("last"), want)
				delete(nets, cut(a, n))
			default:
				want := ^uint64(0)
				for k := uint64(0); k <= n; k++ {
					if v, ok := nets[cut(a, k)]; ok {
						want = v
					}
				}
				same("lookup", global("found"), want)
				key := append(key4(uint32(n)), byte(a>>32), byte(a>>24), byte(a>>16), byte(a>>8), byte(a))
				v, err := l.mapOf(t, "nets").Lookup(key)
				same("Lookup", err == nil, want != ^uint64(0))
				if err == nil {
					same("Lookup", binary.LittleEndian.Uint64(v), want)
				}
			}
		}

		l.run(t, "task", map[string]uint64{"rdi": 5})
		same("no storage yet", global("found"), ^uint64(0))
		for i := range uint64(3) {
			l.run(t, "task", map[string]uint64{"rdi": 5, "rdx": 1})
			same("storage", global("found"), 5*i)
		}
		l.run(t, "task", map[string]uint64{"rsi": 1})
		l.run(t, "task", map[string]uint64{"rdi": 5})
		same("storage that was deleted", global("found"), ^uint64(0))
	}
}

// TestKindsSize holds that a map that its loader makes larger is as large in the programs.
func TestKindsSize(t *testing.T) {
	c := load(t, "testdata/kinds.bpf.c", "v3")
	if err := c.SetEntries("jobs", 9); err != nil {
		t.Fatal(err)
	}
	l := verified(t, c)
	for i := range uint64(9) {
		l.run(t, "push", map[string]uint64{"rdi": i})
	}
	n := 0
	for range l.mapOf(t, "jobs").All() {
		n++
	}
	if n != 9 {
		t.Errorf("%d values of 9", n)
	}
	if err := c.SetEntries("jobs", 1<<30); err == nil || !strings.Contains(err.Error(), "up to") {
		t.Error(err)
	}
}

// TestMade runs programs that call others, compare texts and walk stacks.
func TestMade(t *testing.T) {
	for _, version := range versions {
		c := load(t, "testdata/made.bpf.c", version)
		for _, name := range []string{"first", "second"} {
			if !c.Program(name).Called {
				t.Errorf("%s is to need no place", name)
			}
		}
		check := func(l *loaded, name, want string) {
			t.Helper()
			b, err := l.Var(name).In(l.mapOf(t, ".bss"))
			if err != nil {
				t.Fatal(err)
			}
			words := make([]int64, len(b)/8)
			if _, err := binary.Decode(b, binary.LittleEndian, words); err != nil {
				t.Fatal(err)
			}
			if got := strings.Trim(fmt.Sprint(words), "[]"); got != want {
				t.Errorf("%s: %s is %s, want %s", version, name, got, want)
			}
		}
		l := verified(t, c)
		for index, want := range []string{"51", "59", "52", "59", "59"} {
			l.run(t, "calls", map[string]uint64{"rdi": uint64(index)})
			check(l, "last", want)
		}
		l.run(t, "texts", nil)
		check(l, "last", "0")
		check(l, "walked", "1")
		l.vm.Env.Comm = "redis-cli"
		l.run(t, "texts", nil)
		check(l, "last", "-16") // 'c' - 's'

		// Three frames: each points at the next, above.
		memory := map[uint64][2]uint64{0x1000: {0x1040, 0x111}, 0x1040: {0x1080, 0x222}, 0x1080: {0, 0x333}}
		read := l.vm.Env.Read
		l.vm.Env.Read = func(addr uint64, p []byte) error {
			f, ok := memory[addr]
			if !ok || len(p) != 16 && len(p) != 8 {
				return read(addr, p)
			}
			copy(p, appendU64(f[0], f[1]))
			return nil
		}
		l.run(t, "stacks", map[string]uint64{"rip": 0xaaa, "rbp": 0x1000})
		check(l, "walked", "32")
		check(l, "frames", "2730 273 546 819 0 0")
		l.run(t, "stacks", map[string]uint64{"rip": 0xaaa, "rbp": 0x1000, "rdi": 2})
		check(l, "walked", "16")
		l.run(t, "stacks", map[string]uint64{"rip": 0xaaa, "rdi": 3})
		check(l, "walked", "-14")
		// Where a function begins, it has no frame yet.
		memory[0xff8] = [2]uint64{0x99, 0}
		l.vm.Env.FuncIP = 0xaaa
		l.run(t, "stacks", map[string]uint64{"rip": 0xaaa, "rbp": 0x1000, "rsp": 0xff8})
		check(l, "walked", "40")
		check(l, "frames", "2730 153 273 546 819 0")
		l.run(t, "stacks", map[string]uint64{"rip": 0xaaa, "rbp": 0x1000, "rsp": 0xff8, "rdi": 1})
		check(l, "frames", "153 273 546 819 819 0") // of which four are told
		l.vm.Env.FuncIP = 0

		l.run(t, "others", map[string]uint64{"rdi": bpftest.PageAddr + bpftest.PageText})
		check(l, "last", "0")
		check(l, "walked", "4294967297001")

		if err := c.SetTail("next", 1, "second"); err != nil {
			t.Fatal(err)
		}
		l = verified(t, c)
		l.run(t, "calls", map[string]uint64{"rdi": 1})
		check(l, "last", "52")
		if err := c.SetTail("next", 4, "second"); err == nil {
			t.Error("an index that there is not")
		}
		if err := c.SetTail("next", 3, "calls"); err == nil || !strings.Contains(err.Error(), "leads back to itself") {
			t.Error(err)
		}
	}
}

// TestMapsOfMaps looks values up in two steps.
func TestMapsOfMaps(t *testing.T) {
	for _, version := range versions {
		l := verified(t, load(t, "testdata/maps.bpf.c", version))
		want := map[string]map[uint32]uint64{"reads": {}, "writes": {}, "small": {}, "large": {}}
		missing := uint64(0)
		rng := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			call, element := uint32(rng.IntN(5)), uint32(rng.IntN(5))
			l.run(t, "count", map[string]uint64{"rdi": uint64(call), "rsi": uint64(element)})
			if name := map[uint32]string{0: "reads", 2: "writes"}[call]; name == "" {
				missing++
			} else if element < 4 {
				want[name][element]++
			}
			size, id := rng.Uint64N(8192), uint32(rng.IntN(16))
			l.run(t, "size", map[string]uint64{"rdi": size, "rsi": uint64(id)})
			class := want["small"]
			if size > 4096 {
				class = want["large"]
			}
			if _, ok := class[id]; ok {
				delete(class, id)
			} else {
				class[id] = size
			}
		}
		for name, values := range want {
			for id := range uint32(16) {
				v, err := l.mapOf(t, name).Lookup(key4(id))
				if w, ok := values[id]; ok && (err != nil || binary.LittleEndian.Uint64(v) != w) {
					t.Errorf("%s: %s[%d] is % x (%v), want %d", version, name, id, v, err, w)
				} else if !ok && err == nil && binary.LittleEndian.Uint64(v) != 0 {
					t.Errorf("%s: %s[%d] is % x", version, name, id, v)
				}
			}
		}
		b, err := l.Var("missing").In(l.mapOf(t, ".bss"))
		if err != nil || binary.LittleEndian.Uint64(b) != missing {
			t.Errorf("%s: % x missing (%v), want %d", version, b, err, missing)
		}
		for range l.mapOf(t, "calls").All() {
			t.Error("a map of maps has elements for the controller")
		}
	}
}

// TestInner puts maps into a map of maps: others before it is loaded, and while it is used.
func TestInner(t *testing.T) {
	for _, version := range versions {
		c := load(t, "testdata/maps.bpf.c", version)
		for key, inner := range map[uint32]string{1: "mine", 7: "small"} {
			if err := c.SetInner("users", key, inner); err != nil {
				t.Fatal(err)
			}
		}
		for _, wrong := range []struct {
			outer string
			key   uint32
			inner string
		}{{"users", 2, "reads"}, {"reads", 0, "mine"}, {"none", 0, "mine"}, {"calls", 4, "writes"}, {"users", 1, ""}} {
			if err := c.SetInner(wrong.outer, wrong.key, wrong.inner); err == nil {
				t.Errorf("%s: %v", version, wrong)
			}
		}
		l := verified(t, c)
		users := l.mapOf(t, "users")
		in := map[uint64]string{1: "mine", 7: "small"}
		want := map[string]map[uint32]uint64{"mine": {}, "small": {}, "large": {}}
		rng := rand.New(rand.NewPCG(3, 4))
		for range 500 {
			user, id := rng.Uint64N(4)<<40|7, uint32(rng.IntN(4))
			if rng.IntN(3) == 0 {
				user = 1
			}
			switch inner := []string{"", "", "mine", "small", "large"}[rng.IntN(5)]; {
			case rng.IntN(4) > 0:
			case inner == "" && in[user] == "":
				if err := users.SetInner(key8(user), inner); !errors.Is(err, bpf.ErrNotExist) {
					t.Fatal(err)
				}
			default:
				if err := users.SetInner(key8(user), inner); err != nil {
					t.Fatal(err)
				}
				in[user] = inner
			}
			if inner, err := users.Inner(key8(user)); inner != in[user] || errors.Is(err, bpf.ErrNotExist) != (inner == "") {
				t.Fatalf("%s: %q (%v) is in it, want %q", version, inner, err, in[user])
			}
			l.run(t, "by_user", map[string]uint64{"rdi": user, "rsi": uint64(id)})
			b, err := l.Var("found").In(l.mapOf(t, ".bss"))
			if err != nil || (binary.LittleEndian.Uint64(b) == 1) != (in[user] != "") {
				t.Fatalf("%s: found % x (%v), and %q is there", version, b, err, in[user])
			}
			if in[user] != "" {
				want[in[user]][id]++
			}
		}
		for name, values := range want {
			for id, n := range values {
				if got := l.u64(t, name, key4(id)); got != n {
					t.Errorf("%s: %s[%d] is %d, want %d", version, name, id, got, n)
				}
			}
		}
		for _, wrong := range []error{users.SetInner(key8(1), "reads"), l.mapOf(t, "calls").SetInner(key4(4), "writes"), l.mapOf(t, "calls").SetInner(key4(0), "small")} {
			if !errors.Is(wrong, bpf.ErrNotExist) {
				t.Error(wrong)
			}
		}
		if err := l.mapOf(t, "reads").SetInner(key4(0), "mine"); !errors.Is(err, bpf.ErrInvalid) {
			t.Error(err)
		}
		calls := l.mapOf(t, "calls")
		if err := calls.SetInner(key4(0), ""); err != nil {
			t.Fatal(err)
		}
		l.run(t, "count", map[string]uint64{"rdi": 0})
		if b, err := l.Var("missing").In(l.mapOf(t, ".bss")); err != nil || b[0] != 1 {
			t.Errorf("%s: % x missing (%v)", version, b, err)
		}
	}
}

func appendU64(words ...uint64) (b []byte) {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}
