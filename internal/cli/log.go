package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"onering/internal/files"
)

// NewLogger returns a logger that writes one line for each message. It leaves the
// time out, which log.txt in the run folder has.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				return slog.Attr{}
			}
			return a
		},
	}))
}

// A LogFile is the log.txt of a run folder. Messages before the folder exists are held in memory until Open.
type LogFile struct {
	mu     sync.Mutex
	file   *os.File
	before []byte // messages before Open
}

// Write implements io.Writer.
func (l *LogFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		l.before = append(l.before, p...)
		return len(p), nil
	}
	return l.file.Write(p)
}

// Open creates or opens the file, to which all later messages are appended.
func (l *LogFile) Open(path string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	file, err := files.Append(path)
	if err != nil {
		return err
	}
	_, err = file.Write(l.before)
	l.file, l.before = file, nil
	return err
}

// Print adds a line of text with the time.
func (l *LogFile) Print(line string) {
	fmt.Fprintf(l, "%s %s\n", time.Now().Format(time.RFC3339), escaped(line))
}

// Close closes the file, if there is one.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// Join copies every message that the program logs, such as what graders print, to the
// file, too. leave ends this and closes the file.
func (l *LogFile) Join() (leave func()) {
	console := slog.Default()
	file := slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})
	slog.SetDefault(slog.New(slog.NewMultiHandler(console.Handler(), file)))
	return func() {
		slog.SetDefault(console)
		l.Close()
	}
}
