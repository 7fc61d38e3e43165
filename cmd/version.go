package cmd

import (
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// A buildVersion is what "onering version" prints.
type buildVersion struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // git commit of the build
	Time     string `json:"time,omitempty"`     // of that commit
	Modified bool   `json:"modified,omitempty"` // the tree had changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// readVersion returns what the go command recorded in the binary: the version of
// the module, or "devel", and the commit.
func readVersion() buildVersion {
	v := buildVersion{Version: "devel", Go: goruntime.Version(), Platform: goruntime.GOOS + "/" + goruntime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if m := info.Main.Version; m != "" && m != "(devel)" {
		v.Version = m
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// commit says which commit the program was built from.
func (v buildVersion) commit() string {
	if v.Revision == "" {
		return "commit not recorded (go run and -buildvcs=false record none; go install ./cmd/onering in a git checkout does)"
	}
	text := "commit " + v.Revision
	if v.Time != "" {
		text += " of " + v.Time
	}
	if v.Modified {
		text += ", modified"
	}
	return text
}

func newVersion() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  onering version\n  onering version --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v := readVersion()
			if asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(v)
			}
			fmt.Fprintf(c.OutOrStdout(), "onering %s %s %s, %s\n", v.Version, v.Go, v.Platform, v.commit())
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
