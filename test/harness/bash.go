package harness

import (
	"os/exec"
	"testing"

	"kprobe/internal/testprog"
)

// bashLoop is a shell that answers rounds: it forks, waits, traps signals, expands and reads what it has written.
const bashLoop = `
trap 'seen=$((seen + 1))' USR1
fib() { if (($1 < 2)); then echo "$1"; else echo $(($(fib $(($1 - 1))) + $(fib $(($1 - 2))))); fi; }
echo ready
while read -r n; do
	seen=0; text=
	for ((i = 0; i < n * 20; i++)); do text+=$i; [[ $text =~ ([0-9])$ ]] && text=${text/${BASH_REMATCH[1]}/x}; done
	echo "${#text} ${text:3:10} ${text//[0-4]/-}"
	for ((i = 0; i < n; i++)); do kill -USR1 $$; (exit $((i % 7))); echo "$? $seen"; done
	fib 4
	printf '%s\n' {c..a} | while read -r x; do echo "<$x>"; done
	read -r first <<<"here is $n"; echo "$first"
	declare -A m=([a]=1 [b]=2); echo "${m[a]}${m[b]} ${!m[*]}" | wc -c
	(exit 3) & wait $!; echo "waited $?"
	echo done
done
`

// StartBash runs the distribution's shell.
func StartBash(t testing.TB) *testprog.Proc {
	t.Helper()
	cmd := exec.Command("/bin/bash", "-c", bashLoop)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LANG=C"}
	p := testprog.StartCmd(t, cmd)
	p.Expect("ready")
	return p
}
