// Command gotracer is a Go target that traces its children by the calls of package syscall. A round:
//
//	child    a child asks to be traced (SysProcAttr.Ptrace), and stops for that
//	attach   a child is traced that runs already
//	run PROG a child executes a program; what it prints is printed
//
// It prints the command, and the status that the child ended with.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

//go:noinline
func tracerWork(n int) int { return n*3 + 1 }

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	runtime.LockOSThread() // who traces is a thread
	in := bufio.NewScanner(os.Stdin)
	for fmt.Println("ready"); in.Scan(); fmt.Println("done") {
		command := in.Text()
		if program, ok := strings.CutPrefix(command, "run "); ok {
			out, err := exec.Command(program, "-u").CombinedOutput()
			check(err)
			fmt.Print(string(out))
			continue
		}
		child := exec.Command("/bin/sh", "-c", "read x; exit 6")
		child.SysProcAttr = &syscall.SysProcAttr{Ptrace: command == "child"}
		input, err := child.StdinPipe()
		check(err)
		check(child.Start())
		pid := child.Process.Pid
		if command == "attach" {
			check(syscall.PtraceAttach(pid))
		}
		var status syscall.WaitStatus
		_, err = syscall.Wait4(pid, &status, 0, nil)
		check(err)
		if !status.Stopped() {
			fmt.Println("it has ended", status)
		}
		check(syscall.PtraceDetach(pid))
		input.Close()
		child.Wait()
		fmt.Println(command, child.ProcessState.ExitCode(), tracerWork(1))
	}
}
