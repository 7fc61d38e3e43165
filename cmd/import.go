package cmd

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"onering/internal/peers"
	"onering/internal/settings"
)

// newImport makes the command import, which translates the settings of another trainer.
func newImport() *cobra.Command {
	c := newCommand("import", nil, func(c *cobra.Command, _ []string) error {
		return usagef("say whose config it is: import trl FILE or import verl FILE")
	})
	c.Args = knownCommand
	// import-trl names the help file; its first line names the command, trl. So does import-verl.
	ofTRL := importTRLOptions{Processes: 1}
	trl := newCommand("import-trl", &ofTRL, func(c *cobra.Command, args []string) error {
		return importConfig(c, args[0], func(text []byte) (*peers.Run, error) { return peers.TRL(text, ofTRL.Processes, ofTRL.Rows) })
	})
	var ofVerl importOptions
	verl := newCommand("import-verl", &ofVerl, func(c *cobra.Command, args []string) error {
		return importConfig(c, args[0], func(text []byte) (*peers.Run, error) { return peers.Verl(text, args[1:], ofVerl.Rows) })
	})
	verl.Args = cobra.MinimumNArgs(1) // the file, and overrides of its keys
	c.AddCommand(trl, verl)
	return c
}

// importOptions has the flags of import verl.
type importOptions struct {
	Rows int `range:"[0,)" help:"rows of the data, for a config that counts passes over it"`
}

// importTRLOptions has the flags of import trl.
type importTRLOptions struct {
	importOptions
	Processes int `range:"[0,)" help:"processes that the run has there, as num_processes of accelerate"`
}

// importConfig prints the run file that means what the other trainer's config in the file called name does, which
// read translates. If there is none, the error names the keys without a counterpart. It checks the run file.
func importConfig(c *cobra.Command, name string, read func(text []byte) (*peers.Run, error)) error {
	text, name, err := readConfig("FILE", name, c.InOrStdin())
	if err != nil {
		return err
	}
	run, err := read(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if len(run.Aside) > 0 {
		slog.Info("keys that do not change what is learned are left out", "keys", strings.Join(run.Aside, " "))
	}
	if len(run.Refused) > 0 {
		lines := make([]string, len(run.Refused))
		for i, r := range run.Refused {
			lines[i] = fmt.Sprintf("  %s: %s", r.Key, r.Reason)
		}
		return fmt.Errorf("%s: no run file means the same:\n%s", name, strings.Join(lines, "\n"))
	}
	out := run.TOML()
	source, err := settings.File("its run file", []byte(out))
	if err == nil {
		var r *resolved
		if r, err = resolve(source); err == nil {
			err = r.Locate(r.Config.Validate())
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = io.WriteString(c.OutOrStdout(), out)
	return err
}
