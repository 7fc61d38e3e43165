package command

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"onering/internal/files"
	"onering/reward/external"
)

// A process is a running grader. Its pipes are read and written by goroutines of
// their own, so that a grader that does not read, or writes more than it is asked,
// blocks nothing but itself.
type process struct {
	name  string
	input chan []byte   // lines for its standard input
	ended chan struct{} // closed when the process and what it began are gone

	mu      sync.Mutex
	last    int // id of the newest group
	waiting map[int]chan []byte
	answers int
	cause   error // why it has to end, nil while it works
	kill    func()

	// Set before ended is closed.
	err     error
	endedAt time.Time

	stderr stderrLog
	stdin  *os.File
}

// Times that a process is given to end, and its pipes to run empty after that.
const (
	grace = 2 * time.Second
	drain = 500 * time.Millisecond
)

// start starts a program. What is printed by a Python program does not wait in a
// buffer, unless the environment says otherwise.
func start(command []string) (*process, error) {
	stdinRead, stdin, err1 := os.Pipe()
	stdout, stdoutWrite, err2 := os.Pipe()
	stderr, stderrWrite, err3 := os.Pipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdinRead, stdoutWrite, stderrWrite
	mark := fmt.Sprintf("ONERING_GRADER_%016x=1", rand.Uint64()) // of the process and all that it starts
	cmd.Env = append([]string{"PYTHONUNBUFFERED=1", mark}, os.Environ()...)
	separate(cmd)
	p := &process{
		name: command[0], input: make(chan []byte), ended: make(chan struct{}), waiting: map[int]chan []byte{},
		stdin: stdin, stderr: stderrLog{name: command[0], allowance: firstLines},
	}
	p.kill = sync.OnceFunc(func() { killGroup(cmd, mark) })
	started := make(chan error)
	go p.supervise(cmd, started, stdout, stderr)
	err := <-started
	for _, theirs := range []*os.File{stdinRead, stdoutWrite, stderrWrite} {
		theirs.Close()
	}
	if err != nil {
		for _, ours := range []*os.File{stdin, stdout, stderr} {
			ours.Close()
		}
		return nil, fmt.Errorf("cannot be started: %w", err)
	}
	return p, nil
}

// supervise starts the process and waits for its end. Some systems tie the life of a
// child to the thread that started it (see separate), so this goroutine keeps its
// thread until then.
func (p *process) supervise(cmd *exec.Cmd, started chan<- error, stdout, stderr *os.File) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	started <- err
	if err != nil {
		return
	}
	var readers sync.WaitGroup
	readers.Go(func() { p.readAnswers(stdout) })
	readers.Go(func() { p.stderr.read(stderr) })
	go p.write()
	err = cmd.Wait()
	p.kill() // what the program itself has started
	// A process that has left the group may hold the pipes open.
	for _, pipe := range []*os.File{stdout, stderr} {
		pipe.SetReadDeadline(time.Now().Add(drain))
	}
	readers.Wait()
	for _, pipe := range []*os.File{p.stdin, stdout, stderr} {
		pipe.Close()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.cause != nil:
		p.err = p.cause
	case err == nil:
		p.err = errors.New("the process ended before it had answered")
	default:
		p.err = fmt.Errorf("the process died: %w", err)
	}
	if words := p.stderr.lastWords(); words != "" && p.cause != errStopped {
		p.err = fmt.Errorf("%w; its last words: %s", p.err, words)
	}
	p.endedAt = time.Now()
	close(p.ended)
}

// expect makes the id of another group, and a place for the answer to it.
func (p *process) expect() (id int, answer <-chan []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	place := make(chan []byte, 1)
	p.waiting[p.last] = place
	p.stderr.allow(linesPerGroup)
	return p.last, place
}

// abandon says that nobody waits for the answer to a group any more.
func (p *process) abandon(id int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting[id] != nil {
		p.waiting[id] = make(chan []byte, 1)
	}
}

// fail ends the process because of err.
func (p *process) fail(err error) {
	p.mu.Lock()
	if p.cause == nil {
		p.cause = err
	}
	p.mu.Unlock()
	p.kill()
}

// stop ends the process in peace if it lets itself be.
func (p *process) stop() {
	p.mu.Lock()
	if p.cause == nil {
		p.cause = errStopped
	}
	p.mu.Unlock()
	p.stdin.Close()
	select {
	case <-p.ended:
	case <-time.After(grace):
		p.kill()
		<-p.ended
	}
}

// write hands the lines to the process. An error means that it has closed its input;
// it may still answer what it has read, or the timeout ends it.
func (p *process) write() {
	for {
		select {
		case line := <-p.input:
			if _, err := p.stdin.Write(line); err != nil {
				slog.Debug("the grader does not read", "command", p.name, "reason", err)
			}
		case <-p.ended:
			return
		}
	}
}

// readAnswers passes on the answers until the output ends. What is no answer ends the
// process: nobody knows which group it was meant for.
func (p *process) readAnswers(stdout io.Reader) {
	in := bufio.NewReaderSize(stdout, 1<<16)
	for number := 1; ; number++ {
		line, err := files.ReadLine(in, external.MaxAnswer)
		if err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
			return // a last line without an end is what a dying process has left
		}
		if err == bufio.ErrTooLong {
			err = fmt.Errorf("%s is longer than %d MB", external.Excerpt(line), external.MaxAnswer>>20)
		}
		if err == nil {
			err = p.deliver(bytes.Clone(line)) // others read it while the next line comes
		}
		if err != nil {
			p.fail(fmt.Errorf("line %d of its output: %w", number, err))
			io.Copy(io.Discard, stdout)
			return
		}
	}
}

// deliver passes on a line to whom it answers.
func (p *process) deliver(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	var head struct {
		ID *int `json:"id"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return fmt.Errorf("%s is not an answer: %w; what is not one belongs on standard error", external.Excerpt(line), err)
	}
	if head.ID == nil {
		return fmt.Errorf("%s has no \"id\": an answer has that of its group", external.Excerpt(line))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	place := p.waiting[*head.ID]
	switch {
	case place == nil && *head.ID > 0 && *head.ID <= p.last:
		return fmt.Errorf("%s answers group %d a second time", external.Excerpt(line), *head.ID)
	case place == nil:
		return fmt.Errorf("%s answers group %d, which it was not given", external.Excerpt(line), *head.ID)
	}
	delete(p.waiting, *head.ID)
	p.answers++
	place <- line
	return nil
}

// What of the standard error is logged: lines of a length, so many at the start and
// so many more with each group.
const (
	longestLine   = 4096
	firstLines    = 200
	linesPerGroup = 20
	mostLines     = 1000
	lastLines     = 15
)

// A stderrLog logs what a process writes to its standard error.
type stderrLog struct {
	name string

	mu        sync.Mutex
	allowance int // lines that may still be logged
	dropped   int // lines that were not
	last      []string
}

// allow adds to the lines that may be logged.
func (l *stderrLog) allow(lines int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowance = min(l.allowance+lines, mostLines)
}

func (l *stderrLog) read(from io.Reader) {
	in := bufio.NewReaderSize(from, longestLine)
	for {
		part, more, err := in.ReadLine()
		if len(part) > 0 {
			l.line(external.Printable(string(part)))
		}
		for more && err == nil { // the rest of a line that is too long
			_, more, err = in.ReadLine()
		}
		if err != nil {
			return
		}
	}
}

func (l *stderrLog) line(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last = append(l.last, text); len(l.last) > lastLines {
		l.last = slices.Delete(l.last, 0, 1)
	}
	if l.allowance == 0 {
		l.dropped++
		return
	}
	l.allowance--
	if l.dropped > 0 {
		slog.Warn("the grader writes more to its standard error than is logged", "command", l.name, "lines left out", l.dropped)
		l.dropped = 0
	}
	slog.Info("the grader says", "command", l.name, "stderr", text)
}

// lastWords returns the newest lines.
func (l *stderrLog) lastWords() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, " | ")
}
