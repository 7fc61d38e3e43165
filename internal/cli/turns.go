package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/term"
)

// Turns are the turns of a conversation that somebody types, or the lines of a file.
type Turns struct {
	Number int  // of the newest line; lines count from 1
	Typed  bool // the turns are typed on a terminal

	signals chan os.Signal
	presses int                    // of Ctrl-C since the newest line
	lines   chan typedLine         // the line that Next has asked for
	read    func() (string, error) // reads a line; errPressed if Ctrl-C ended it
	restore func()                 // gives the terminal back as it was
	pending bool                   // a line is being read
}

// A typedLine is a line, or the error of reading it.
type typedLine struct {
	text string
	err  error
}

// errPressed is the error of a line that Ctrl-C ended.
var errPressed = errors.New("interrupted")

// ReadTurns reads turns from in: with line editing where in and the output to are a terminal, else line by line, for
// which it asks on prompts if they are typed. Signals no longer end the program: Next and Answering handle them,
// until Close.
func ReadTurns(in io.Reader, to, prompts io.Writer) *Turns {
	out := Screen(to)
	t := &Turns{signals: make(chan os.Signal, 8), Typed: IsTerminal(in), lines: make(chan typedLine, 1), restore: func() {}}
	if t.Typed && out != nil && os.Getenv("TERM") != "dumb" {
		t.edit(in.(*os.File), out)
	} else {
		lines := bufio.NewReader(in)
		t.read = func() (string, error) {
			if t.Typed {
				fmt.Fprint(prompts, "> ")
			}
			line, err := ReadLine(lines)
			if err != nil && err != io.EOF {
				err = fmt.Errorf("stdin:%d: %w", t.Number+1, err)
			}
			if err == nil && t.Number == 0 {
				line = bytes.TrimPrefix(line, []byte("\ufeff")) // a byte order mark
			}
			return string(line), err
		}
	}
	signal.Notify(t.signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	return t
}

// Close gives the terminal back, and lets signals end the program again.
func (t *Turns) Close() {
	signal.Stop(t.signals)
	t.restore()
}

// edit has t read lines with line editing. The terminal is raw only while it does. Pasted lines are one turn.
func (t *Turns) edit(in, out *os.File) {
	keys := &keyReader{in: in}
	line := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{keys, out}, "> ")
	var state atomic.Pointer[term.State] // a signal may restore it while a line is read
	t.restore = func() {
		if s := state.Swap(nil); s != nil {
			line.SetBracketedPasteMode(false)
			term.Restore(int(in.Fd()), s)
		}
	}
	t.read = func() (text string, err error) {
		if w, h, err := term.GetSize(int(out.Fd())); err == nil && w > 0 {
			line.SetSize(w, h)
		}
		was, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return "", err
		}
		state.Store(was)
		line.SetBracketedPasteMode(true)
		defer t.restore()
		for {
			part, err := line.ReadLine()
			if keys.pressed {
				keys.pressed = false
				return "", errPressed
			}
			text += part
			if !errors.Is(err, term.ErrPasteIndicator) {
				return text, err
			}
			text += "\n"
		}
	}
}

// A keyReader reads what is typed. Ctrl-C, which ends a line as Ctrl-D does, becomes
// the keys that empty the line and end it, and is noted.
type keyReader struct {
	in      io.Reader
	rest    []byte // bytes that were read and not handed out yet
	pressed bool
}

// Read implements io.Reader. It hands out what was typed up to a Ctrl-C, and then the keys that stand for the Ctrl-C,
// unless p has no room for all three of them.
func (k *keyReader) Read(p []byte) (int, error) {
	if len(k.rest) == 0 {
		n, err := k.in.Read(p)
		k.rest = append(k.rest, p[:n]...)
		if n == 0 {
			return 0, err
		}
	}
	const ctrlC, endOfLine, eraseLine = 3, 5, 21
	if k.rest[0] == ctrlC && len(p) >= 3 {
		k.rest, k.pressed = nil, true // what was typed after it is dropped
		return copy(p, []byte{endOfLine, eraseLine, '\r'}), nil
	}
	n := bytes.IndexByte(k.rest, ctrlC)
	if n < 0 || len(p) < 3 {
		n = len(k.rest)
	}
	n = copy(p, k.rest[:n])
	k.rest = k.rest[n:]
	return n, nil
}

// Next returns the next turn, without space around it; empty lines are none. io.EOF means that there are no more, or
// that the user has pressed Ctrl-C twice. A signal, but Ctrl-C of a user who types, ends it with an Interrupted.
func (t *Turns) Next(ctx context.Context) (string, error) {
	for {
		if !t.pending { // a line that was asked for before may still be coming
			t.pending = true
			go func() {
				text, err := t.read()
				t.lines <- typedLine{text, err}
			}()
		}
		select {
		case line := <-t.lines:
			t.pending = false
			switch {
			case line.err == errPressed:
				if t.press() { // the second time
					return "", io.EOF
				}
				continue
			case line.err != nil:
				if t.Typed && line.err == io.EOF {
					fmt.Fprintln(os.Stderr) // the prompt stands on a line that Ctrl-D does not end
				}
				return "", line.err
			}
			t.Number, t.presses = t.Number+1, 0
			text := strings.TrimSpace(line.text)
			if text == "" {
				continue
			}
			return text, nil
		case s := <-t.signals:
			if s != os.Interrupt || !t.Typed {
				return "", leftBy(s)
			}
			if t.press() { // the second time
				return "", io.EOF
			}
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// press counts a Ctrl-C while nothing is answered, and reports whether it leaves.
func (t *Turns) press() (leave bool) {
	if t.presses++; t.presses < 2 {
		slog.Info("Ctrl-C again leaves, as does Ctrl-D")
	}
	return t.presses >= 2
}

// leftBy is the error of a chat that a signal ended.
func leftBy(s os.Signal) error { return Interrupted{Signal: s, Next: "the conversation is gone"} }

// Answering returns a context that Ctrl-C cancels while an answer is sampled. done releases it, and returns an error
// if a signal ends the chat: Ctrl-C a second time, or another one.
func (t *Turns) Answering() (ctx context.Context, done func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended, finished := make(chan struct{}), make(chan error)
	go func() {
		var leave error
		for {
			select {
			case s := <-t.signals:
				if t.presses++; s != os.Interrupt || t.presses >= 2 {
					leave = leftBy(s)
				}
				cancel()
			case <-ended:
				finished <- leave
				return
			}
		}
	}()
	return ctx, func() error {
		close(ended)
		defer cancel()
		return <-finished
	}
}
