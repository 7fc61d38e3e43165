// Package data reads problems with their answers from the files people have them in: JSON lines, a JSON array,
// CSV, Parquet, Arrow (stream and file), a Hugging Face `datasets` folder. Text files may be packed by gzip,
// zstd, bzip2 or xz.
//
// Rows are streamed: whatever the size of a file, memory holds a line of a text file, a page per column of a
// Parquet file, a record batch of an Arrow file. Two levels are offered: rawRows gives the rows as they are in
// the file, a reader the prompts and answers found in them.
//
// Parquet is decoded by parquet-go and Arrow by arrow-go, which allocate as much as a file states for its lists,
// runs and sizes. So this package reads the bytes itself, checks what metadata, page headers and record batches
// ask for against the file and fixed limits, and only then has the libraries decode them. (arrow-go reads
// Parquet too, but it adds 20 MB to the program where parquet-go adds 3, starts goroutines whose panics end the
// program, and compares no checksums.)
//
// The reader of rows that parquet-go has was tried in place of the columns and pages read here. It refuses the
// codec LZ4, the level encoding BIT_PACKED and row groups with codecs of their own, all of which
// TestParquetPages reads. It unpacks a page to whatever length the compressed bytes have, so that a file of 1.6
// kB took 2 GiB. And columns with a dictionary take 1.7 times as long, since each of their values becomes a text
// of its own.
package data

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Columns say where the parts of a problem are in a file: the names of columns, a
// column inside a structure as "reward_model.ground_truth". Where a name is empty
// the first column of PromptNames, AnswerNames and IDNames in which a row has a value
// is taken, in any case of letters, and with blanks or hyphens for underscores; an ID
// column need not exist.
type Columns struct {
	Prompt string `toml:"prompt" help:"column of the problem, one inside a structure as reward_model.ground_truth; found by name if not given"`
	Answer string `toml:"answer" help:"column of the answer; found by name if not given"`
	ID     string `toml:"id" help:"column of the problem's name; found by name if not given"`
	storage
}

// storage says how the files of a dataset are read, whatever their rows are.
type storage struct {
	Split     string `toml:"split" help:"split of a datasets folder that has several"`
	Expansion int    `toml:"expansion" range:"[0,1000000000]" note:"0 is 256" help:"how many times its own size a file may come to when it is unpacked, beyond 64 MiB"`
}

// Options say which rows of a dataset are read, and from which columns.
type Options struct {
	Columns
	// Filter keeps the rows for which an expression holds; see ParseFilter.
	Filter string
	// Limit stops after this number of rows; 0 reads all.
	Limit int
	// Input, if not nil, is read in place of the path, which then only names it:
	// JSON lines or a JSON array.
	Input io.Reader
	// NoAnswers takes rows without an answer that can be read.
	NoAnswers bool
	// AsWritten keeps answers of several sentences whole, for rewards that compare texts.
	AsWritten bool
	// Keep are the columns that the template shows. They are not part of conversations, and
	// demonstrations keep them.
	Keep []string
	// Offers, if not nil, returns the choices that a model has to see to answer the problem
	// of a row.
	Offers func(row Object) (labels, texts []string)
	// OnBad, if not nil, is called with an error for each row that lacks a prompt or an
	// answer; such rows are dropped and counted. If OnBad is nil, the first such row is
	// an error. A row that cannot be read at all is always an error.
	OnBad func(error)

	// skipBadLines makes OnBad also receive the errors of unreadable lines; reading
	// continues after them where that is possible.
	skipBadLines bool
}

// The columns that are looked for, in this order.
var (
	PromptNames = []string{"problem", "question", "prompt", "instruction", "input", "query", "messages", "conversations", "conversation"}
	AnswerNames = []string{"answer", "final_answer", "expected_answer", "correct_answer", "answerKey", "ground_truth",
		"gold", "target", "reward_model.ground_truth", "answers", "reference", "solution"}
	IDNames = []string{"id", "unique_id", "problem_id", "question_id", "uuid"}
)

// A rowError says what is wrong with one row.
type rowError struct {
	File   string
	Unit   string // "line" or "row"
	Line   int    // number of the line or row, from 1; 0 if the error is about the whole file
	Reason string // why the row is dropped, in words that rows share; empty if reading stops
	Err    error
}

func (e *rowError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("data: %s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("data: %s: %s %d: %v", e.File, e.Unit, e.Line, e.Err)
}

func (e *rowError) Unwrap() error { return e.Err }

// LeaveOut is an Options.OnBad for which Report.Log names the first rows that are dropped.
func LeaveOut(error) {}

// namedRows is how many of the rows that are dropped are named.
const namedRows = 5

// A Report counts the rows that were read.
type Report struct {
	Files    []string       `json:"files"`
	Read     int            `json:"read"`     // rows in the files, as far as they were read
	Filtered int            `json:"filtered"` // rows the filter left out
	Rows     int            `json:"rows"`     // number of rows returned
	Dropped  map[string]int `json:"dropped"`  // number of rows that lack what is needed, by reason
	// LeftOut are columns that Load did not keep because all of them would take
	// too much memory.
	LeftOut []string `json:"left_out,omitempty"`
	// Unread are columns that have values, and that no prompt and no answer is made of.
	Unread []string `json:"unread,omitempty"`
	// The columns in use in the file read last. If several columns serve, the first of its rows.
	Prompt string `json:"prompt"`
	Answer string `json:"answer"`
	ID     string `json:"id,omitempty"`

	bad []error // about the first rows that were dropped
}

// String states the report in one line.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d rows", r.Rows, r.Read)
	if r.Filtered > 0 {
		fmt.Fprintf(&b, ", %d filtered out", r.Filtered)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.Dropped)) {
		fmt.Fprintf(&b, ", %d dropped (%s)", r.Dropped[reason], reason)
	}
	return b.String()
}

// A reader streams the rows of a dataset. It is used by one goroutine at a
// time.
type reader struct {
	records *rawRows
	opts    Options
	filter  *Filter
	unseen  []string // columns of the filter that no row has had yet
	columns columns
	file    int // the file that columns is for
	unread  unread
	report  Report
	err     error

	demonstrations bool // rows are demonstrations or read as they are, and not problems
}

// Open opens a dataset: a file, a glob, or a folder with data files. The content of a
// file decides its format.
func Open(path string, o Options) (*reader, error) {
	r := &reader{opts: o, file: -1, report: Report{Dropped: map[string]int{}}, unread: unread{known: map[string]bool{}}}
	if o.Limit < 0 {
		return nil, fmt.Errorf("data: limit %d is negative (0 reads all)", o.Limit)
	}
	if o.Filter != "" {
		var err error
		if r.filter, err = ParseFilter(o.Filter); err != nil {
			return nil, err
		}
		r.unseen = r.filter.Columns() // method row removes those that a row has
		for _, name := range r.unseen {
			head, _, _ := strings.Cut(name, ".") // the filter reads it, so it is not unread
			r.unread.known[name], r.unread.known[head] = true, true
		}
	}
	var err error
	if r.records, err = openRecords(path, o); err != nil {
		return nil, err
	}
	for _, f := range r.records.files {
		r.report.Files = append(r.report.Files, f.path)
	}
	return r, nil
}

// Report returns the counts so far.
func (r *reader) Report() Report {
	report := r.report
	report.Dropped, report.Unread = maps.Clone(r.report.Dropped), slices.Clone(r.unread.names)
	used := r.columns.used
	report.Prompt, report.Answer, report.ID = strings.Join(used[promptPart], ", "), strings.Join(used[answerPart], ", "), strings.Join(used[idPart], ", ")
	return report
}

// Close closes the file that is open.
func (r *reader) Close() error { return r.records.Close() }

// Next returns the next row that passes the filter and has a prompt and an
// answer; io.EOF at the end. After an error every call returns it again.
func (r *reader) Next() (Problem, error) {
	if r.err != nil {
		return Problem{}, r.err
	}
	p, err := r.next()
	if err != nil {
		r.err = err
		r.Close()
		return Problem{}, err
	}
	r.report.Rows++
	return p, nil
}

// Raw returns the next row that passes the filter as it is in its file; io.EOF at the end.
func (r *reader) Raw() (Object, error) {
	if r.opts.Limit > 0 && r.report.Rows == r.opts.Limit {
		return nil, io.EOF
	}
	r.demonstrations = true
	rec, err := r.row()
	r.report.Rows++
	return rec.Object, err
}

// next returns the problem of the next row that has one; rows without are dropped.
func (r *reader) next() (Problem, error) {
	if r.opts.Limit > 0 && r.report.Rows == r.opts.Limit {
		return Problem{}, io.EOF
	}
	for {
		rec, err := r.row()
		if err != nil {
			return Problem{}, err
		}
		p, bad := r.columns.problem(rec, r.records.src.Unit, r.records.files[r.file].name, &r.unread)
		if bad == nil {
			return p, nil
		}
		if err := r.drop(bad); err != nil {
			return Problem{}, err
		}
	}
}

// drop counts a row that is dropped, or returns the error about it if none may be.
func (r *reader) drop(bad *rowError) error {
	if r.opts.OnBad == nil {
		return bad
	}
	r.report.Dropped[bad.Reason]++
	if len(r.report.bad) < namedRows {
		r.report.bad = append(r.report.bad, bad)
	}
	r.opts.OnBad(bad)
	return nil
}

// row returns the next row that passes the filter. With skipBadLines it counts lines that cannot be
// read as dropped, and reads on.
func (r *reader) row() (record, error) {
	for {
		rec, err := r.records.Next()
		if err == io.EOF {
			err = r.end()
		}
		if err != nil && r.opts.skipBadLines && r.records.skipBadLine() {
			r.report.Read++
			r.report.Dropped[unreadableLine]++
			r.opts.OnBad(err) // who sets skipBadLines sets OnBad
			continue
		}
		if err != nil {
			return record{}, err
		}
		if r.file != r.records.file { // rec is the first row of another file
			if err := r.beginFile(rec); err != nil {
				return record{}, err
			}
		}
		r.report.Read++
		if r.filter != nil {
			if len(r.unseen) > 0 { // columns of the filter that no row has had yet, an error at the end
				r.unseen = slices.DeleteFunc(r.unseen, func(name string) bool { _, ok := lookup(rec.Object, name); return ok })
			}
			if !r.filter.Match(rec.Object) {
				r.report.Filtered++
				continue
			}
		}
		return rec, nil
	}
}

// beginFile goes to the file whose first row is first. It returns an error if the file before lacks a
// column, or if the first row shows that this one does.
func (r *reader) beginFile(first record) error {
	if err := r.checkColumnsSeen(); err != nil {
		return err
	}
	r.file, r.columns = r.records.file, columns{opts: r.opts}
	fail := func(err error) error { return &rowError{File: first.File, Err: err} }
	if !r.demonstrations { // loadRows finds the columns of these, and missingColumn then misses none
		r.columns.locateParts(first.Object)
	}
	// If all rows have the same columns, a wrong name is an error at once.
	if uniform := r.records.src.Columns != nil; !uniform {
		return nil
	}
	if err := r.columns.missingColumn(); err != nil {
		return fail(r.withHeaderHint(err))
	}
	if r.filter == nil {
		return nil
	}
	for _, name := range r.filter.Columns() {
		if _, ok := lookup(first.Object, name); !ok && !strings.Contains(name, ".") {
			return fail(fmt.Errorf("filter %q: there is no column %q (have %q)", r.opts.Filter, name, columnNames(first.Object)))
		}
	}
	return nil
}

// withHeaderHint adds to an error about the columns of a CSV file where their names come from.
func (r *reader) withHeaderHint(err error) error {
	if src := r.records.src; src.Columns == nil || src.Unit != "line" {
		return err
	}
	return fmt.Errorf("%w; the first line of the file is read as the names of the columns: put such a line there", err)
}

// checkColumnsSeen returns an error if no row of the file that was read had a column that is needed.
func (r *reader) checkColumnsSeen() error {
	if r.file < 0 { // no file was begun
		return nil
	}
	if err := r.columns.missingColumn(); err != nil {
		return &rowError{File: r.records.files[r.file].path, Err: err}
	}
	return nil
}

// end returns io.EOF, or an error about the dataset as a whole.
func (r *reader) end() error {
	if err := r.checkColumnsSeen(); err != nil {
		return err
	}
	if len(r.unseen) > 0 && r.report.Read > 0 {
		// Otherwise a misspelt column would silently filter everything out.
		return fmt.Errorf("data: filter %q: no row has a column %q", r.opts.Filter, r.unseen[0])
	}
	return io.EOF
}

// Load reads a whole dataset into memory. A dataset without a single row is an
// error. Columns besides the prompt's take at most 256 MiB: where they would take
// more, the largest are left out, and Report.LeftOut names them.
func Load(path string, o Options) ([]Problem, Report, error) {
	r, err := Open(path, o)
	if err != nil {
		return nil, Report{}, err
	}
	defer r.Close()
	memory := fieldMemory{budget: fieldBudget, bytes: map[string]int{}}
	var problems []Problem
	for {
		p, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, r.Report(), err
		}
		problems = append(problems, p)
		memory.countNewest(problems, r.columns.used[promptPart])
	}
	report := r.Report()
	report.LeftOut = memory.leftOut
	return problems, report, report.refused(path)
}

// refused returns the error for which a dataset with this report is not trained on: it has no
// rows, or more rows lack a part than have all.
func (r Report) refused(path string) error {
	dropped := 0
	for _, n := range r.Dropped {
		dropped += n
	}
	switch {
	case r.Rows == 0 && len(r.bad) > 0:
		return fmt.Errorf("data: %s: no row is left: %v; the first is %w: name the columns with data.prompt and data.answer", path, r, r.bad[0])
	case r.Rows == 0:
		return fmt.Errorf("data: %s: no row is left: %v", path, r)
	case dropped > r.Rows:
		return fmt.Errorf("data: %s: %d of the %d rows have no problem or no answer in the columns %q and %q: name "+
			"the columns with data.prompt and data.answer, or choose the rows with data.filter", path, dropped, r.Rows+dropped, r.Prompt, r.Answer)
	}
	return nil
}

// A record is a row as it is in its file.
type record struct {
	File string
	Line int // line or row, from 1
	Object
}

// rawRows streams the rows of a dataset unchanged.
type rawRows struct {
	files []file
	file  int // index of the open file
	src   *Rows
	err   error

	expansion int // as in Options
}

// openRecords opens a dataset like Open, for its raw rows. It uses only Split, Expansion
// and Input of o.
func openRecords(path string, o Options) (*rawRows, error) {
	if o.Input != nil {
		text := bufio.NewReaderSize(o.Input, 1<<16)
		skipMark(text)
		src, err := openJSON(Input{Text: text})
		if err != nil {
			return nil, fmt.Errorf("data: %s: %w", path, err)
		}
		return &rawRows{files: []file{{path: path, name: path}}, src: src}, nil
	}
	files, err := findFiles(path, o.Split)
	if err != nil {
		return nil, err
	}
	r := &rawRows{files: files}
	// The first file is opened at once, so that a wrong path or format is
	// known before any work.
	r.expansion = o.Expansion
	if r.src, err = openRows(files[0], o.Expansion); err != nil {
		return nil, err
	}
	return r, nil
}

// unreadableBytes is about how much memory the report on an unreadable line takes.
const unreadableBytes = 160

// Next returns the next row, also over the end of a file; io.EOF at the end of the last. A row that
// cannot be read gives a *rowError, and ends the reading unless skipBadLine is called.
func (r *rawRows) Next() (record, error) {
	for r.err == nil {
		path := r.files[r.file].path
		o, line, err := r.src.Next()
		bad := badLine{}
		if damaged := errors.As(err, &bad); (err == nil || damaged) && r.src.unfolding != nil {
			taken := valueBytes(o) // it counts, since a file may store repeated values in almost no space
			if damaged {
				taken = unreadableBytes
			}
			if over := r.src.unfolding.add(int64(taken)); over != nil {
				err, bad = over, badLine{} // it ends the reading also where the line alone was bad
			}
		}
		if err == nil {
			return record{path, line, o}, nil
		}
		unit := r.src.Unit
		if bad.error != nil {
			// The file stays open for skipBadLine.
			r.err = &rowError{File: path, Unit: unit, Line: line, Reason: unreadableLine, Err: bad.error}
			break
		}
		closeErr := r.Close()
		switch {
		case err != io.EOF:
			r.err = &rowError{File: path, Unit: unit, Line: line, Err: endIsError(err)}
		case closeErr != nil:
			r.err = &rowError{File: path, Err: closeErr}
		case r.file+1 == len(r.files):
			r.err = io.EOF
		default:
			r.file++
			r.src, r.err = openRows(r.files[r.file], r.expansion)
		}
	}
	return record{}, r.err
}

// skipBadLine clears the error of a line that could not be read, so that Next
// reads the one after it. It returns false if the error is another one.
func (r *rawRows) skipBadLine() bool {
	var row *rowError
	if r.src == nil || !errors.As(r.err, &row) || row.Reason != unreadableLine {
		return false
	}
	r.err = nil
	return true
}

// Close closes the file that is open.
func (r *rawRows) Close() error {
	if r.src == nil {
		return nil
	}
	err := r.src.close()
	r.src = nil
	return err
}
