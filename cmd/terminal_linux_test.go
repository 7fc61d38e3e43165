package cmd

import (
	"bytes"
	"onering/internal/cli"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A screenTest is a program in a terminal.
type screenTest struct {
	*testing.T
	cmd  *exec.Cmd
	keys *os.File

	mu    sync.Mutex
	shown bytes.Buffer
	ended chan struct{}
}

// inTerminal starts the program under test in a terminal of 80x24.
func inTerminal(t *testing.T, args ...string) *screenTest {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { keys.Close() })
	fd := int(keys.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err != nil {
		t.Skip(err)
	}
	terminal, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer terminal.Close()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &screenTest{T: t, keys: keys, ended: make(chan struct{})}
	s.cmd = &exec.Cmd{
		Path: program, Args: append([]string{"onering"}, args...), Env: append(os.Environ(), "TERM=xterm", "ONERING_OFFLINE=1"),
		Stdin: terminal, Stdout: terminal, Stderr: terminal,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true},
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cmd.Process.Kill() })
	go func() {
		defer close(s.ended)
		part := make([]byte, 4096)
		for {
			n, err := keys.Read(part)
			s.mu.Lock()
			s.shown.Write(part[:n])
			s.mu.Unlock()
			if err != nil { // the program has closed its end of the terminal
				return
			}
		}
	}()
	return s
}

// wait waits until a text has been shown n times, and types an answer to it.
func (s *screenTest) wait(text string, n int, keys string) {
	s.Helper()
	for began := time.Now(); strings.Count(s.text(), text) < n; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			s.Fatalf("%q was not shown %d times:\n%q", text, n, s.text())
		}
	}
	if _, err := s.keys.WriteString(keys); err != nil {
		s.Fatal(err)
	}
}

func (s *screenTest) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

// exit waits for the end of the program and returns the exit code.
func (s *screenTest) exit() int {
	s.Helper()
	select {
	case <-s.ended:
	case <-time.After(2 * time.Minute):
		s.Fatalf("the program does not end:\n%q", s.text())
	}
	s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// TestChatInTerminal types into a chat.
func TestChatInTerminal(t *testing.T) {
	dir := talker(t)
	s := inTerminal(t, "chat", "--model", dir, "--seed", "5", "--max-tokens", "100")
	s.wait("> ", 1, "x1\x7f\x7f1+1\r") // edited on the way
	s.wait("> ", 2, "garbage\x03")
	s.wait("Ctrl-C again leaves", 1, "/help\r")
	s.wait("/save FILE", 1, "\x1b[200~1+\r2\x1b[201~\r") // two pasted lines
	s.wait("is not in the vocabulary", 1, "\x04")        // the newline between them
	if code := s.exit(); code != 1 {
		t.Errorf("exit code %d:\n%s", code, s.text())
	}
	text := s.text()
	want := generatedTexts(t, `{"prompt":"1+1"}`, "--model", dir, "--seed", "5", "--max-tokens", "100", "--chat")[0]
	var shown strings.Builder
	(&cli.Visible{To: &shown}).Write([]byte(want))
	if shown := shown.String(); !strings.Contains(strings.ReplaceAll(text, "\r", ""), shown) || want == shown {
		t.Errorf("no %q in\n%q", shown, text)
	}

	s = inTerminal(t, "chat", "--model", dir)
	s.wait("> ", 1, "\x03")
	s.wait("Ctrl-C again leaves", 1, "\x03")
	if code := s.exit(); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.text())
	}
	s = inTerminal(t, "chat", "--model", dir)
	s.wait("> ", 1, "\x04")
	if code := s.exit(); code != 0 {
		t.Errorf("Ctrl-D: exit code %d:\n%s", code, s.text())
	}
}
