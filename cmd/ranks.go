package cmd

import (
	"bytes"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"onering/internal/cli"
	"onering/train"
	"onering/train/ranks"
)

// joinTeam joins the other ranks where a launcher of MPI has started several processes, and refuses ranks of other
// versions or commands. After that only the first rank prints.
func joinTeam(c *cobra.Command, d train.DistributedConfig) (*ranks.Group, error) {
	version := readVersion()
	t, err := ranks.Join(c.Context(), strings.TrimSpace(version.Version+" "+version.Revision), d.Timeout)
	if err != nil {
		return nil, err
	}
	if !t.First() {
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
	}
	if err := t.Same("command", c.CommandPath()); err != nil {
		return nil, t.End(err)
	}
	return t, nil
}

// shareInput gives all ranks the standard input of the first rank, if the command reads it.
func shareInput(c *cobra.Command, t *ranks.Group, path string) error {
	if path != "-" || t.Size() == 1 {
		return nil
	}
	text, err := ranks.FromFirst(t, func() ([]byte, error) { return io.ReadAll(c.InOrStdin()) })
	c.SetIn(bytes.NewReader(text))
	return err
}

// addOthers gives own, what this rank has, to the other ranks, and calls add with each element of theirs. failed is
// this rank's error so far: if one rank has one, all return an error. Alone it returns failed.
func addOthers[T any](t *ranks.Group, own []T, failed error, add func(T) error) error {
	if t.Size() == 1 {
		return failed
	}
	all, err := ranks.GatherAll(t, own, failed)
	for rank, list := range all {
		for i := 0; i < len(list) && rank != t.Rank() && err == nil; i++ {
			err = add(list[i])
		}
	}
	return err
}

// runsAlone lists commands that must not run as several ranks: each rank would do all the work.
var runsAlone = map[string]bool{
	"onering bench": true, "onering merge": true, "onering push": true, "onering replay": true, "onering serve": true,
	"onering step": true, "onering sweep": true,
}

// aloneOnly refuses a command or flag that works only in a single process, if several were started.
func aloneOnly(c *cobra.Command) error {
	launcher, _ := ranks.Launcher()
	if launcher == "" {
		return nil
	}
	if runsAlone[c.CommandPath()] {
		return usagef("%s runs in one process, and %s has started several: start it without; train, sft, eval and generate divide their work",
			c.CommandPath(), launcher)
	}
	if f := c.Flags().Lookup("config"); f != nil && f.Value.String() == "-" {
		return usagef("--config -: only the first of the processes that %s has started has an input: name a file that all can read", launcher)
	}
	return nil
}

// isLaterRank says whether this process is a rank other than the first, which prints for all.
func isLaterRank() bool {
	_, rank := ranks.Launcher()
	return rank > 0
}

// setLogger makes the first rank log to w, and the others not.
func setLogger(w io.Writer, level slog.Level) {
	log := cli.NewLogger(w, level)
	if isLaterRank() {
		log = slog.New(slog.DiscardHandler)
	}
	slog.SetDefault(log)
}
