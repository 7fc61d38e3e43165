//go:build unix

package command

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// parentAndChild returns the processes that the grader "parent" has written to its file.
func parentAndChild(t *testing.T, file string) (parent, child int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		_, err = fmt.Sscan(string(text), &parent, &child)
	}
	if err != nil {
		t.Fatal(err)
	}
	return parent, child
}

// gone waits for the end of a process. A process that ended and that nobody waited for
// counts as gone if it is not a child of the test.
func gone(t *testing.T, what string, pid int) {
	t.Helper()
	for range 1000 {
		if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			return
		}
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && bytes.Contains(stat, []byte(") Z ")) && !bytes.Contains(stat, fmt.Appendf(nil, ") Z %d ", os.Getpid())) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s, process %d, is still there", what, pid)
}

// TestClose: a grader that does not exit on its own is killed with its children, and a
// closed reward can be used again.
func TestClose(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	p := program("parent", file, "waits")
	for range 2 {
		if scores, err := p.Score(t.Context(), group("p", "four")); err != nil || scores[0].Value != 4 {
			t.Fatalf("%v, %v", scores, err)
		}
		parent, child := parentAndChild(t, file)
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		gone(t, "the grader", parent)
		gone(t, "its child", child)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseInPeace: a grader that exits on its own gets the time for it.
func TestCloseInPeace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bye")
	p := program("polite", file)
	if _, err := p.Score(t.Context(), group("p", "four")); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("it was killed: %v", err)
	}
}

// TestOrphan: a child that holds the grader's pipes open does not hide the grader's
// death, and is killed too.
func TestOrphan(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pids")
	p := closed(t, program("parent", file, "ends"))
	p.Retries = 0
	_, err := p.Score(t.Context(), group("p", "four"))
	if err == nil {
		t.Error("graded by a dead grader")
	}
	_, child := parentAndChild(t, file)
	gone(t, "the grader's child", child)
}

func init() {
	// Starts a child in a session of its own, through another child, and prints its number.
	graders["daemon"] = func(args []string) {
		if args[1] == "leaves" {
			exec.Command(os.Args[0], "grader", "daemon", args[0], "stays").Run()
		} else if args[1] == "stays" {
			child := exec.Command(os.Args[0], "grader", "deaf")
			child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := child.Start(); err != nil {
				panic(err)
			}
			os.WriteFile(args[0], []byte(fmt.Sprint(os.Getpid(), " ", child.Process.Pid)), 0o644)
			return
		}
		each(func(t task) { fmt.Println(answer(t)) })
	}
}

// TestDaemon: a process that left the grader's process group ends with the grader.
func TestDaemon(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the environment of processes")
	}
	file := filepath.Join(t.TempDir(), "pids")
	p := closed(t, program("daemon", file, "leaves"))
	if scores, err := p.Score(t.Context(), group("p", "four")); err != nil || scores[0].Value != 4 {
		t.Fatalf("%v, %v", scores, err)
	}
	_, child := parentAndChild(t, file)
	if err := syscall.Kill(child, 0); err != nil {
		t.Errorf("the daemon ended before the grader: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	gone(t, "the grader's daemon", child)
}

// TestKilled: when onering is killed, the grader ends too.
func TestKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends the children of a killed process")
	}
	file := filepath.Join(t.TempDir(), "pids")
	onering := exec.Command(os.Args[0], "grader", "onering", file)
	out, err := onering.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := onering.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "graded\n" {
		t.Fatalf("%q, %v", line, err)
	}
	parent, child := parentAndChild(t, file)
	defer syscall.Kill(child, syscall.SIGKILL) // No process kills the children of children.
	onering.Process.Kill()
	onering.Wait()
	gone(t, "the grader", parent)
}
