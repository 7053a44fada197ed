package inside

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// A runtime that finds the frames of functions by their return addresses finds them: the returns are seen at the functions' exits.
func TestReturnsOfScannedFrames(t *testing.T) {
	const calls = 65 // in each other, in a round
	path := testprog.Build(t, "scans", "-O1", "-fno-omit-frame-pointer")
	for _, inside := range []bool{false, true} {
		t.Run(fmt.Sprint("inside ", inside), func(t *testing.T) {
			p := testprog.Start(t, path)
			s := harness.Attach(t, p.Pid, nil)
			swapped := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "camlScans__deep_80"}, Engine: kprobe.EngineSwap, Program: kprobe.CountOnly}
			if err := s.RegisterKretprobe(swapped); err == nil || !strings.Contains(err.Error(), "OCaml's runtime reads the return addresses") {
				t.Errorf("its return address may be swapped: %v", err)
			}
			entered := &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "camlScans__deep_80"}, Entry: func(int64, int32) {}}
			if err := s.RegisterJprobe(entered); err == nil || !strings.Contains(err.Error(), "the function is OCaml's") {
				t.Errorf("its arguments are where C's are: %v", err)
			}
			var rps []*kprobe.Kretprobe
			for _, name := range []string{"camlScans__deep_80", "scan", "caml_turn"} {
				rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: name}, MaxActive: 2 * calls}
				if inside {
					rp.Program = kprobe.CountOnly
				} else {
					rp.Handler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int { return 0 }
				}
				rps = append(rps, rp)
			}
			harness.OK(t, s.RegisterKretprobes(rps))
			const rounds = 3
			for n := range rounds {
				p.Round("%d", n)
			}
			for i, want := range []uint64{rounds * calls, rounds, rounds} {
				if got := rps[i].Hits(); got != want {
					t.Errorf("%s: %d returns, want %d", rps[i].Kp.SymbolName, got, want)
				}
			}
		})
	}
}

// ocamlCounts has calls that return, and calls that exceptions leave, with garbage that is collected meanwhile.
const ocamlCounts = `
exception Found of int

let rec fib n = if n < 2 then n else fib (n - 1) + fib (n - 2)
let check k x = if x = k then raise (Found x) else x
let find k = try List.fold_left (fun a x -> a + check k x) 0 (List.init 60 (fun x -> x)) with Found x -> x

let () =
  let sum = ref 0 in
  for i = 1 to 2000 do
    sum := !sum + find (i mod 50)
  done;
  Gc.full_major ();
  Printf.printf "%d %d\n" (fib 20) !sum
`

// TestOCaml counts the calls and the returns of a program of OCaml's while it collects its garbage. Calls that an exception leaves do not
// return.
func TestOCaml(t *testing.T) {
	ocamlopt, err := exec.LookPath("ocamlopt")
	if err != nil {
		t.Skip(testprog.NotHere + "an OCaml, which is not installed for tests")
	}
	dir := t.TempDir()
	source, path := filepath.Join(dir, "counts.ml"), filepath.Join(dir, "counts")
	harness.OK(t, os.WriteFile(source, []byte(ocamlCounts), 0o600))
	if out, err := exec.Command(ocamlopt, "-g", "-o", path, source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said, err := exec.Command(path).Output()
	harness.OK(t, err)
	cmd := exec.Command(testprog.Command(t, "kprobe/cmd/kprobe"), "stat", "p counts:camlCounts__*", "r counts:*", "--", path)
	var out, told strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &told
	if err := cmd.Run(); err != nil || out.String() != string(said) {
		t.Fatalf("%v: probed it says %q, else %q\n%s", err, out.String(), said, told.String())
	}
	hits := map[string]string{} // by the kind and the function's name, without its number
	for line := range strings.Lines(told.String()) {
		if f := strings.Fields(line); len(f) == 5 && strings.Contains(f[1], ":camlCounts__") {
			_, name, _ := strings.Cut(f[1], "__")
			name, _, _ = strings.Cut(name, "_")
			hits[f[0][:1]+" "+name] = f[2]
		}
	}
	// Two thousand searches, for k = 0 to 49 in turn, call check k+1 times each, of which the last does not return.
	for what, want := range map[string]string{"p fib": "21891", "r fib": "21891", "p find": "2000", "r find": "2000", "p check": "51000", "r check": "49000"} {
		if hits[what] != want {
			t.Errorf("%s: %s hits, want %s\n%s", what, hits[what], want, told.String())
		}
	}
}
