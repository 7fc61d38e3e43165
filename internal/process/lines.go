package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"onering/internal/files"
)

// MaxAnswer is the most bytes that an answer may have.
const MaxAnswer = 16 << 20

// Lines are asked by lines of their standard input, each a JSON object with an "id", and
// answer by lines of their standard output with the same, in any order.
type Lines struct {
	*Process
	Words

	mu      sync.Mutex
	input   chan []byte // lines for its standard input
	last    int         // id of the newest question
	waiting map[int]chan []byte
	answers int
}

// Words are those of messages about a program: what it is, such as "grader", and what its
// questions are about, such as "group". Remedy says which settings give it more time.
type Words struct{ Kind, Unit, Remedy string }

// StartLines starts a program.
func StartLines(command []string, words Words) (*Lines, error) {
	l := &Lines{Words: words, input: make(chan []byte), waiting: map[int]chan []byte{}}
	p, err := Start(words.Kind, exec.Command(command[0], command[1:]...), l.read)
	if err != nil {
		return nil, err
	}
	l.Process = p
	go l.write()
	return l, nil
}

// Ask asks a question, which encode writes for its id, and waits for the answer. A process
// that gives none within the limit, if that is not 0, is killed. If ctx ends first, nobody
// waits for the answer any more; the process goes on.
func (l *Lines) Ask(ctx context.Context, limit time.Duration, encode func(id int) []byte) (id int, text []byte, err error) {
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	id, answer := l.expect()
	line := append(encode(id), '\n')
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	input := l.input
	for {
		select {
		case input <- line:
			input = nil
			continue
		case <-late:
			l.Fail(fmt.Errorf("no answer to %s %d within %v s, the process is killed; %s", l.Unit, id, limit.Seconds(), l.Remedy))
			continue
		case <-ctx.Done():
			l.abandon(id)
			return id, nil, ctx.Err()
		case text := <-answer:
			return id, text, nil
		case <-l.Ended:
		}
		select {
		case text := <-answer: // its last one
			return id, text, nil
		default:
			return id, nil, l.err
		}
	}
}

// Answered says whether the process has answered anything.
func (l *Lines) Answered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers > 0
}

// expect makes the id of another question, and a place for the answer to it.
func (l *Lines) expect() (id int, answer <-chan []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	place := make(chan []byte, 1)
	l.waiting[l.last] = place
	l.stderr.allow(linesPerGroup)
	return l.last, place
}

// abandon says that nobody waits for an answer any more.
func (l *Lines) abandon(id int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[id] != nil {
		l.waiting[id] = make(chan []byte, 1)
	}
}

// write hands the lines to the process. An error means that it has closed its input;
// it may still answer what it has read, or the limit ends it.
func (l *Lines) write() {
	for {
		select {
		case line := <-l.input:
			if _, err := l.Stdin.Write(line); err != nil {
				slog.Debug("the "+l.Kind+" does not read", "command", l.stderr.name, "reason", err)
			}
		case <-l.Ended:
			return
		}
	}
}

// read passes on the answers until the output ends. What is no answer ends the process:
// nobody knows which question it was meant for.
func (l *Lines) read(p *Process, stdout io.Reader) {
	in := bufio.NewReaderSize(stdout, 1<<16)
	for number := 1; ; number++ {
		line, err := files.ReadLine(in, MaxAnswer)
		if err == io.EOF || errors.Is(err, os.ErrDeadlineExceeded) {
			return // a last line without an end is what a dying process has left
		}
		if err == bufio.ErrTooLong {
			err = fmt.Errorf("%s is longer than %d MB", Excerpt(line), MaxAnswer>>20)
		}
		if err == nil {
			err = l.deliver(bytes.Clone(line)) // others read it while the next line comes
		}
		if err != nil {
			p.Fail(fmt.Errorf("line %d of its output: %w", number, err))
			io.Copy(io.Discard, stdout)
			return
		}
	}
}

// deliver passes on a line to whom it answers.
func (l *Lines) deliver(line []byte) error {
	if len(bytes.TrimSpace(line)) == 0 {
		return nil
	}
	var head struct {
		ID *int `json:"id"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return fmt.Errorf("%s is not an answer: %w; what is not one belongs on standard error", Excerpt(line), err)
	}
	if head.ID == nil {
		return fmt.Errorf("%s has no \"id\": an answer has that of its %s", Excerpt(line), l.Unit)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	place := l.waiting[*head.ID]
	switch {
	case place == nil && *head.ID > 0 && *head.ID <= l.last:
		return fmt.Errorf("%s answers %s %d a second time", Excerpt(line), l.Unit, *head.ID)
	case place == nil:
		return fmt.Errorf("%s answers %s %d, which it was not given", Excerpt(line), l.Unit, *head.ID)
	}
	delete(l.waiting, *head.ID)
	l.answers++
	place <- line
	return nil
}
