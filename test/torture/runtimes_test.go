package torture

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/symbol"
	"kprobe/test/harness"
)

// Runtimes that compile while they run, and live by their own faults: a JVM finds null pointers, and stops its threads, by SIGSEGV.
// It is tried where there is one, as postgres is; node is what setup.sh installs.
func init() {
	victims["node"] = nodeVictim
	if _, err := exec.LookPath("java"); err == nil {
		victims["java"] = javaVictim
	}
	if harness.FindPostgres() != "" {
		victims["postgres"] = postgresVictim
	}
}

const nodeLoop = `
require('readline').createInterface({input: process.stdin}).on('line', line => {
	const n = Number(line), words = [];
	for (let i = 0; i < n; i++) words.push(JSON.stringify({i, text: 'x'.repeat(i % 50), at: [i / 7, null]}));
	console.log(words.length, words.sort().join('').length, require('crypto').createHash('sha256').update(words.join()).digest('hex'));
	console.log(require('zlib').gzipSync(words.join()).length > 0, [...Array(n).keys()].reduce((a, b) => (a * 31 + b) % 1000003, 7));
	console.log('done');
});
console.log('ready');
`

func nodeVictim(t testing.TB) harness.Victim {
	return runtimeVictim(t, "libc.so.6", 0, exec.Command("node", "-e", nodeLoop))
}

const javaLoop = `
import java.util.*;
public class Loop {
	static class Node { Node next; int v; }
	public static void main(String[] a) throws Exception {
		Scanner in = new Scanner(System.in);
		System.out.println("ready");
		while (in.hasNextLine()) {
			int n = Integer.parseInt(in.nextLine()), caught = 0; long sum = 0;
			TreeMap<String, Integer> m = new TreeMap<>();
			for (int i = 0; i < n; i++) {
				m.merge("k" + i % 97, i, Integer::sum);
				Node p = i % 3 == 0 ? null : new Node();
				try { p.v = i; sum += p.v; } catch (NullPointerException e) { caught++; }
			}
			Thread[] ts = new Thread[4]; long[] r = new long[4];
			for (int k = 0; k < 4; k++) { int id = k; ts[k] = new Thread(() -> { for (int i = 0; i < n; i++) r[id] += i * 31L + id; }); ts[k].start(); }
			for (Thread t : ts) t.join();
			if (n % 2 == 0) System.gc();
			System.out.println(caught + " " + sum + " " + m.hashCode() + " " + Arrays.toString(r));
			System.out.println("done");
		}
	}
}
`

func javaVictim(t testing.TB) harness.Victim {
	source := filepath.Join(t.TempDir(), "Loop.java")
	if err := os.WriteFile(source, []byte(javaLoop), 0o600); err != nil {
		t.Fatal(err)
	}
	// The library has 43,000 functions.
	return runtimeVictim(t, "libjvm.so", 40, exec.Command("java", "-Xmx128m", source))
}

// runtimeVictim is a program that answers rounds; of the functions of a library, each in so many is probed.
func runtimeVictim(t testing.TB, library string, each int, cmd *exec.Cmd) harness.Victim {
	p := testprog.StartCmd(t, cmd)
	p.Expect("ready")
	funcs := harness.Entries(t, p.Pid, harness.MappedFile(t, p.Pid, library))
	if each > 1 {
		var some []symbol.Symbol
		for i := 0; i < len(funcs); i += each {
			some = append(some, funcs[i])
		}
		funcs = some
	}
	return harness.Victim{Proc: p, PID: p.Pid, Funcs: funcs, Work: []func() error{harness.Repeat(p, "2000")}}
}

// postgresVictim is the process that serves a client. Its errors are thrown by siglongjmp.
func postgresVictim(t testing.TB) harness.Victim {
	p := harness.StartPostgres(t)
	p.Work()
	want := p.Work()
	libc := harness.Entries(t, p.Backend, harness.MappedFile(t, p.Backend, "libc.so.6"))
	return harness.Victim{Proc: p.Server, PID: p.Backend, Funcs: libc, Returns: true,
		Work: []func() error{func() error { return harness.Differ(p.Work(), want) }}}
}
