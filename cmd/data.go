package cmd

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"onering/runtime/train/dataset"
	"onering/tokenize"
	"onering/verifier"
)

func newData() *cobra.Command {
	c := &cobra.Command{
		Use:   "data",
		Short: "Look at files of problems",
		Long: `Look at files of problems: JSON lines, a JSON array, CSV, Parquet, Arrow, or a
Hugging Face datasets folder. Formats are told by content; a glob in quotes
names several files.`,
		Example: "  onering data show train.parquet -n 3\n  onering data check train.jsonl",
		Args:    knownCommand,
		RunE: func(c *cobra.Command, _ []string) error {
			return usagef("say what to do: data show FILE or data check FILE")
		},
	}
	c.AddCommand(newDataShow(), newDataCheck(), newDataArithmetic())
	return c
}

func newDataShow() *cobra.Command {
	var limit int
	var filter string
	c := &cobra.Command{
		Use:   "show FILE",
		Short: "Print the rows of a file as JSON lines",
		Long:  "Print the rows of a file, whatever its format, as one JSON object per line with\nthe columns in the file's order.",
		Example: `  onering data show train.parquet -n 3
  onering data show 'shards/*.arrow' | jq -r .problem
  onering data show math.jsonl --filter 'level in 3..5'`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if limit < 0 {
				return usagef("-n %d: must be at least 0; 0 prints all rows", limit)
			}
			var keep *dataset.Filter
			if filter != "" {
				var err error
				if keep, err = dataset.ParseFilter(filter); err != nil {
					return usageError{err}
				}
			}
			path, err := localData(c, args[0])
			if err != nil {
				return err
			}
			return showData(c.OutOrStdout(), path, limit, keep)
		},
	}
	c.Flags().IntVarP(&limit, "rows", "n", 0, "print at most this many rows; 0 is all")
	c.Flags().StringVar(&filter, "filter", "", `print the rows for which it holds, such as 'level in 3..5'`)
	return c
}

func showData(w io.Writer, path string, limit int, keep *dataset.Filter) error {
	records, err := dataset.OpenRecords(path)
	if err != nil {
		return err
	}
	defer records.Close()
	out := lineWriter{w}
	for shown := 0; limit == 0 || shown < limit; {
		record, err := records.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if keep != nil && !keep.Match(record.Object) {
			continue
		}
		if err := out.write(record.Object); err != nil {
			return err
		}
		shown++
	}
	return nil
}

func newDataCheck() *cobra.Command {
	var o dataset.Options
	var model, template string
	var asJSON bool
	c := &cobra.Command{
		Use:   "check FILE",
		Short: "Report what is wrong with a file of problems",
		Long: `Report what is wrong with a file of problems: rows without a problem or an
answer, problems that occur twice, answers that the verifier does not match even
with themselves, and, with --model, the lengths of the prompts in tokens.

A file that cannot be read is an error; findings are not.`,
		Example: `  onering data check train.jsonl
  onering data check train.parquet --prompt question --answer final --json
  onering data check train.jsonl --model Qwen2.5-Math-1.5B --template qwen_math`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			folder, err := localTokenizer(c, model)
			if err != nil {
				return err
			}
			lengths, err := promptLength(folder, template)
			if err != nil {
				return err
			}
			path, err := localData(c, args[0])
			if err != nil {
				return err
			}
			report, err := checkData(path, o, lengths)
			if err != nil {
				return err
			}
			if asJSON {
				return lineWriter{c.OutOrStdout()}.write(report)
			}
			report.print(c.OutOrStdout())
			return nil
		},
	}
	flags := c.Flags()
	flags.StringVar(&o.Prompt, "prompt", "", "column of the problem; found by name if not given")
	flags.StringVar(&o.Answer, "answer", "", "column of the answer; found by name if not given")
	flags.StringVar(&o.Filter, "filter", "", `check the rows for which it holds, such as 'level in 3..5'`)
	flags.StringVar(&o.Split, "split", "", "split of a datasets folder that has several")
	flags.StringVar(&model, "model", "", "model folder whose tokenizer measures the prompts")
	flags.StringVar(&template, "template", "qwen_math", "prompt template around each problem: "+strings.Join(tokenize.Templates(), ", "))
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	must(c.MarkFlagDirname("model"))
	must(c.RegisterFlagCompletionFunc("template", completeTemplates))
	return c
}

// promptLength returns a function that counts the tokens of a problem in its
// template; nil without a model.
func promptLength(model, template string) (func(problem string) int, error) {
	if model == "" {
		return nil, nil
	}
	t, err := tokenize.Load(model)
	if err != nil {
		return nil, err
	}
	around, err := tokenize.LookupTemplate(template)
	if err != nil {
		return nil, usageError{err}
	}
	return func(problem string) int { return len(t.Encode(around.Render(problem))) }, nil
}

// findings is what `data check` reports.
type findings struct {
	dataset.Report
	Duplicates finding     `json:"duplicates"` // problems seen before
	Unmatched  finding     `json:"unmatched"`  // answers that the verifier does not even match with themselves
	Bad        finding     `json:"bad"`        // rows without a problem or an answer
	Tokens     *tokenStats `json:"tokens,omitempty"`
}

// A finding counts rows and names the first of them.
type finding struct {
	Count int      `json:"count"`
	First []string `json:"first,omitempty"`
}

// shownFindings is how many rows a finding names.
const shownFindings = 5

func (f *finding) add(format string, args ...any) {
	if f.Count++; f.Count <= shownFindings {
		f.First = append(f.First, fmt.Sprintf(format, args...))
	}
}

func (f finding) print(w io.Writer, what string) {
	if f.Count == 0 {
		return
	}
	fmt.Fprintf(w, "%d %s\n", f.Count, what)
	for _, line := range f.First {
		fmt.Fprintf(w, "  %s\n", line)
	}
	if more := f.Count - len(f.First); more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
}

// checkData reads a dataset once. Of each problem it keeps a 64-bit hash, so
// that memory grows by some 20 bytes a row; two problems of 10 million are
// taken for equal by chance about once in 400,000 files.
func checkData(path string, o dataset.Options, length func(string) int) (*findings, error) {
	var found findings
	o.OnBad = func(err error) {
		var row *dataset.RowError
		if errors.As(err, &row) {
			found.Bad.add("%s:%d: %v", row.File, row.Line, row.Err)
			return
		}
		found.Bad.add("%v", err)
	}
	rows, err := dataset.Open(path, o)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	if length != nil {
		found.Tokens = &tokenStats{counts: map[int]int{}}
	}
	seed, seen := maphash.MakeSeed(), map[uint64]uint32{} // hash of a problem -> line
	for {
		row, err := rows.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		h := maphash.String(seed, row.Prompt)
		if line, ok := seen[h]; ok {
			found.Duplicates.add("%s:%d repeats line %d", row.File, row.Line, line)
		} else {
			seen[h] = uint32(row.Line)
		}
		for _, answer := range row.Answers {
			if !verifier.Verify(answer, `\boxed{`+answer+`}`).Correct {
				found.Unmatched.add("%s:%d: %.60q", row.File, row.Line, answer)
				break
			}
		}
		if length != nil {
			found.Tokens.counts[length(row.Prompt)]++
		}
	}
	found.Report = rows.Report()
	if found.Tokens != nil {
		found.Tokens.finish()
	}
	return &found, nil
}

func (f *findings) print(w io.Writer) {
	fmt.Fprintf(w, "%v in %d file(s), problem %q, answer %q\n", f.Report, len(f.Files), f.Prompt, f.Answer)
	f.Bad.print(w, "rows without a problem or an answer")
	f.Duplicates.print(w, "problems that occurred before")
	f.Unmatched.print(w, "answers that no response can match: the verifier refuses the same text")
	if f.Tokens != nil {
		f.Tokens.print(w)
	}
	if f.Bad.Count+f.Duplicates.Count+f.Unmatched.Count == 0 {
		fmt.Fprintln(w, "nothing wrong found")
	}
}

// tokenStats are the lengths of the prompts in tokens.
type tokenStats struct {
	Mean      float64  `json:"mean"`
	Median    int      `json:"median"`
	P90       int      `json:"p90"`
	P99       int      `json:"p99"`
	Max       int      `json:"max"`
	Histogram []bucket `json:"histogram"`

	counts map[int]int // length -> rows
}

// A bucket holds the rows of lengths from From to To, both included.
type bucket struct {
	From int `json:"from"`
	To   int `json:"to"`
	Rows int `json:"rows"`
}

func (s *tokenStats) finish() {
	lengths := slices.Sorted(maps.Keys(s.counts))
	rows, sum := 0, 0
	for _, n := range lengths {
		rows += s.counts[n]
		sum += n * s.counts[n]
	}
	if rows == 0 {
		return
	}
	// quantile is the shortest length that at least a share q of the rows does
	// not exceed.
	quantile := func(q float64) int {
		below := 0
		for _, n := range lengths {
			if below += s.counts[n]; float64(below) >= q*float64(rows) {
				return n
			}
		}
		return lengths[len(lengths)-1]
	}
	s.Mean = float64(sum) / float64(rows)
	s.Median, s.P90, s.P99, s.Max = quantile(0.5), quantile(0.9), quantile(0.99), quantile(1)
	for _, n := range lengths {
		// Buckets are [2^k, 2^(k+1)), which fit prompts of any length.
		from, to := 0, 0
		if n > 0 {
			from = 1 << (bits.Len(uint(n)) - 1)
			to = 2*from - 1
		}
		if last := len(s.Histogram) - 1; last < 0 || s.Histogram[last].From != from {
			s.Histogram = append(s.Histogram, bucket{From: from, To: to})
		}
		s.Histogram[len(s.Histogram)-1].Rows += s.counts[n]
	}
}

func (s *tokenStats) print(w io.Writer) {
	fmt.Fprintf(w, "prompt tokens: mean %.1f, median %d, 90%% %d, 99%% %d, max %d\n", s.Mean, s.Median, s.P90, s.P99, s.Max)
	most := 1
	for _, b := range s.Histogram {
		most = max(most, b.Rows)
	}
	for _, b := range s.Histogram {
		fmt.Fprintf(w, "%8d-%-8d %9d %s\n", b.From, b.To, b.Rows, bar(b.Rows, most))
	}
}

// bar draws n of most as up to 40 marks, at least one where n is not 0.
func bar(n, most int) string {
	marks := n * 40 / most
	if n > 0 {
		marks = max(marks, 1)
	}
	return string(slices.Repeat([]byte("#"), marks))
}
