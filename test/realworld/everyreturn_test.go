package realworld

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
	"kprobe/trace"
)

// What "stat 'r libc.so.6:*' 'r PROGRAM:*'" asks for: every return of a program and of its library, also where nothing
// returns. The programs go on as they were, and what they say themselves about a number of calls is what is counted.

// asked is a program of which every return is counted.
type asked struct {
	pid     int
	modules []string // beside libc
	work    func() []string
	counts  map[string]uint64 // by place: the calls of a round of work
}

const killNode = `
require('readline').createInterface({input: process.stdin}).on('line', line => {
	for (let i = 0; i < Number(line); i++) process.kill(process.pid, 0);
	console.log(line, JSON.stringify([...Array(500).keys()]).length);
	console.log('done');
});
console.log('ready');
`

const startsThreads = `
public class Starts {
	public static void main(String[] a) throws Exception {
		java.util.Scanner in = new java.util.Scanner(System.in);
		System.out.println("ready");
		while (in.hasNextLine()) {
			int n = Integer.parseInt(in.nextLine());
			long[] r = new long[n];
			Thread[] ts = new Thread[n];
			for (int k = 0; k < n; k++) { int id = k; ts[k] = new Thread(() -> { for (int i = 0; i < 1000; i++) r[id] += i; }); ts[k].start(); }
			for (Thread t : ts) t.join();
			System.out.println(java.util.Arrays.toString(r));
			System.out.println("done");
		}
	}
}
`

// programs answers rounds of its own.
func programs(p *testprog.Proc, round string, counts map[string]uint64, modules ...string) asked {
	return asked{p.Pid, modules, func() []string { return p.Round("%s", round) }, counts}
}

var everyReturn = map[string]func(t *testing.T) asked{
	"bash": func(t *testing.T) asked {
		return programs(harness.StartBash(t), "4", map[string]uint64{"libc.so.6:kill": 4}, "bash")
	},
	"python": func(t *testing.T) asked {
		p := harness.StartPython(t)
		return programs(p, "allofit 3", map[string]uint64{"libc.so.6:kill": 3}, filepath.Base(harness.ProgramOf(t, p.Pid)))
	},
	"node": func(t *testing.T) asked {
		p := testprog.StartCmd(t, exec.Command("node", "-e", killNode))
		p.Expect("ready")
		return programs(p, "30", map[string]uint64{"libc.so.6:kill": 30}, "node")
	},
	"java": func(t *testing.T) asked {
		java, err := exec.LookPath("java")
		if err != nil {
			t.Skip(testprog.NotHere + "a java, which is not installed for tests")
		}
		source := filepath.Join(t.TempDir(), "Starts.java")
		harness.OK(t, os.WriteFile(source, []byte(startsThreads), 0o600))
		p := testprog.StartCmd(t, exec.Command(java, "-Xmx128m", source))
		p.Expect("ready")
		return programs(p, "5", map[string]uint64{"libjvm.so:JVM_StartThread": 5}, "libjvm.so")
	},
	"postgres": func(t *testing.T) asked {
		p := harness.StartPostgres(t)
		return asked{p.Backend, []string{"postgres"}, func() []string { return p.Work() }, map[string]uint64{"postgres:pg_parse_query": harness.PostgresQueries}}
	},
	"redis": func(t *testing.T) asked {
		r := harness.StartRedis(t)
		c := r.Connect(t)
		before := r.Connect(t)
		calls := before.Calls(t)
		c.MustWork(t, "k")
		calls = before.Calls(t) - calls - 1 // one asked for it
		return asked{r.Pid, []string{filepath.Base(harness.ProgramOf(t, r.Pid))}, func() []string { return c.MustWork(t, "k") },
			map[string]uint64{filepath.Base(harness.ProgramOf(t, r.Pid)) + ":call": calls}}
	},
	"nginx": func(t *testing.T) asked {
		n := harness.StartNginx(t)
		get := func() []string {
			for range 20 {
				resp, err := n.Client.Get("http://local/")
				harness.OK(t, err)
				if resp.StatusCode != http.StatusOK {
					t.Error(resp.Status)
				}
				resp.Body.Close()
			}
			return nil
		}
		return asked{n.Worker(t), []string{"nginx"}, func() []string { n.Work(t); return get() }, nil}
	},
	"contexts": func(t *testing.T) asked {
		return programs(testprog.Start(t, testprog.Build(t, "contexts", "-O2")), "20", map[string]uint64{"contexts:adds": 40}, "contexts")
	},
}

func TestEveryReturn(t *testing.T) {
	testprog.Long(t, "it counts every return of whole programs")
	const rounds = 3
	for name, start := range everyReturn {
		t.Run(name, func(t *testing.T) {
			a := start(t)
			a.work()
			want := a.work()
			before := harness.RemainsOf(t, a.pid)
			s := harness.Attach(t, a.pid, &kprobe.Options{Report: func(err error) {
				if name == "java" && strings.Contains(err.Error(), "are free in reach of jumps") {
					t.Logf("reported: %v", err) // the heap of a JVM may leave no room there: such a probe stays a trap
					return
				}
				t.Errorf("reported: %v", err)
			}})
			defs := []string{"r libc.so.6:*"}
			for _, m := range a.modules {
				defs = append(defs, "r "+m+":*")
			}
			st, err := trace.NewStat(s, false, defs...)
			harness.OK(t, err)
			for range rounds {
				harness.SameLines(t, a.work(), want)
			}
			s.WaitOptimized()
			rows, err := st.Rows()
			harness.OK(t, err)
			var hit, hits, missed uint64
			for _, row := range rows {
				if row.Hits > 0 {
					hit++
				}
				hits, missed = hits+row.Hits, missed+row.Missed
				if n, ok := a.counts[row.Place]; ok {
					delete(a.counts, row.Place)
					if row.Hits != n*rounds || row.Missed != 0 {
						t.Errorf("%s: %d returns and %d missed, and not %d", row.Place, row.Hits, row.Missed, n*rounds)
					}
				}
			}
			if missed > 0 {
				t.Errorf("%d returns are missed", missed)
			}
			if len(a.counts) > 0 {
				t.Errorf("not among the places: %v", a.counts)
			}
			t.Logf("%d places, %d of them hit, %d returns, %d missed", len(rows), hit, hits, missed)
			harness.OK(t, st.Close())
			harness.Detach(t, s)
			before.Check(t)
			harness.SameLines(t, a.work(), want)
		})
	}
}

// timed tells the lines that say how long something has taken.
func timed(line string) bool { return strings.HasPrefix(line, "ns ") }

const rustCounted = `
use std::io::BufRead;
#[no_mangle] #[inline(never)] pub fn counted(n: u64) -> u64 { std::hint::black_box(n * 3 + 1) }
fn main() {
	let mut all: Vec<String> = Vec::new();
	for line in std::io::stdin().lock().lines() {
		let n: u64 = line.unwrap().parse().unwrap();
		let sum: u64 = (0..n).map(counted).sum();
		let t = std::thread::spawn(move || sum * 2);
		all.push(format!("{} {}", sum, t.join().unwrap()));
		let r = std::panic::catch_unwind(|| if n > 0 { std::panic::resume_unwind(Box::new(3)) });
		all.push(format!("{}", r.is_err()));
	}
	println!("{}", all.join("\n"));
}
`

// Static programs are their own library: all of it, and what is before main, has return probes from the start.
func TestEveryReturnOfStaticPrograms(t *testing.T) {
	testprog.Long(t, "it counts every return of whole programs")
	command := testprog.Command(t, "kprobe/cmd/kprobe")
	const rounds = "7\n3\n"
	check := func(t *testing.T, path, function string, want string) {
		t.Helper()
		run := func(line ...string) (said, told string, status syscall.WaitStatus) {
			cmd := exec.Command(line[0], line[1:]...)
			var out, err strings.Builder
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(rounds), &out, &err
			cmd.Run()
			said = strings.Join(slices.DeleteFunc(strings.Split(out.String(), "\n"), timed), "\n")
			return said, err.String(), cmd.ProcessState.Sys().(syscall.WaitStatus)
		}
		said, _, status := run(path)
		got, told, gotStatus := run(command, "stat", "r "+path+":*", "--", path)
		if got != said || gotStatus != status {
			t.Fatalf("counted it says\n%sand ends with %#x, else\n%sand %#x\n%s", got, gotStatus, said, status, told)
		}
		if want == "" { // it tells itself
			_, after, _ := strings.Cut(said, "counted ")
			want, _, _ = strings.Cut(after, ",")
			var first, second int
			fmt.Sscan(want, &first)
			_, after, _ = strings.Cut(after, "counted ")
			fmt.Sscan(strings.SplitN(after, ",", 2)[0], &second)
			want = fmt.Sprint(first + second)
		}
		for line := range strings.Lines(told) {
			if f := strings.Fields(line); len(f) == 5 && strings.HasSuffix(f[1], ":"+function) {
				if f[2] != want || f[4] != "0" {
					t.Errorf("%s: %s returns, %s missed; want %s", function, f[2], f[4], want)
				}
				return
			}
		}
		t.Errorf("no row of %s\n%s", function, told)
	}
	builds := [][]string{{"-static"}, {"-static-pie"}, {"-static", "-no-pie"}, {"-static", "-m32"}, {"-static", "CC=musl-gcc"}, {"-static", "-pie", "CC=musl-gcc"}}
	for _, p := range []struct{ name, function, want string }{
		{"args", "args_ints", "10"}, {"jumpers", "jumper", "10"}, {"contexts", "adds", "20"}, {"uncalled", "counted", ""},
	} {
		for _, flags := range builds {
			if p.name == "contexts" && flags[len(flags)-1] == "CC=musl-gcc" {
				continue // musl has no contexts
			}
			t.Run(p.name+strings.Join(flags, ""), func(t *testing.T) {
				if flags[len(flags)-1] == "-m32" {
					testprog.Programs32.Need(t)
				}
				check(t, testprog.Build(t, p.name, append([]string{"-O2"}, flags...)...), p.function, p.want)
			})
		}
	}
	for _, flags := range [][]string{nil, {"-buildmode=pie"}} {
		t.Run("goprog"+strings.Join(flags, ""), func(t *testing.T) {
			testprog.ReadsFSBase.Need(t)
			check(t, testprog.Build(t, "goprog", flags...), "main.goLeaf", "40")
		})
	}
	rustc, err := exec.LookPath("rustc")
	testprog.Need(t, "rustc", err == nil)
	for _, flags := range [][]string{{"-Ctarget-feature=+crt-static"}, {"-Ctarget-feature=+crt-static", "-Crelocation-model=static"}} {
		t.Run("rust"+strings.Join(flags, ""), func(t *testing.T) {
			dir := t.TempDir()
			harness.OK(t, os.WriteFile(filepath.Join(dir, "main.rs"), []byte(rustCounted), 0o600))
			path := filepath.Join(dir, "counting")
			if out, err := exec.Command(rustc, append(flags, "-O", "-o", path, filepath.Join(dir, "main.rs"))...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			check(t, path, "counted", "10")
		})
	}
}
