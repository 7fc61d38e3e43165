package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"onering/internal/files"
)

// gradesFile has the scores of a reward that varies, in order, one group on each line. A resumed run reads
// them. If the file is removed, the groups since the last checkpoint are graded again.
const gradesFile = "grades.jsonl"

// Grades are the file of scores.
type Grades struct {
	mu   sync.Mutex
	file *os.File
	size int64 // up to the end of the last whole line
}

// OpenGrades opens the file of scores and calls line with each existing line. An
// incomplete last line is dropped.
func (f *Folder) OpenGrades(line func(text []byte)) (*Grades, error) {
	path := filepath.Join(f.Dir, gradesFile)
	file, err := files.Append(path)
	if err != nil {
		return nil, fmt.Errorf("train: run folder: %w", err)
	}
	g := &Grades{file: file}
	err = files.EachLine(path, maxLine, func(text []byte) error {
		g.size += int64(len(text))
		line(text)
		return nil
	})
	if err == nil {
		err = file.Truncate(g.size)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("train: run folder: %w; remove the file to have its groups graded again", err), file.Close())
	}
	return g, nil
}

// Append adds a line, which ends with a line break. It is there whole or not at all.
func (g *Grades) Append(line []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := files.FaultOf("append", g.file.Name())
	if err == nil {
		_, err = g.file.Write(line)
	}
	if err != nil {
		g.file.Truncate(g.size)
		return fmt.Errorf("train: writing grades: %w", err)
	}
	g.size += int64(len(line))
	return nil
}

// Close closes the file.
func (g *Grades) Close() error { return g.file.Close() }
