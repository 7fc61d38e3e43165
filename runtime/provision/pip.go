package provision

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"onering/internal/files"
)

// pinned is the version of ONNX Runtime that most sources provide.
const pinned = "1.32.0"

// pip downloads the wheel of the Python package onnxruntime: that for one fixed version
// of Python, whatever version this machine has.
var pip = Wheels("onnxruntime=="+pinned, pinned, wheels)

var wheels = map[string]Build{
	"linux/amd64": {Platform: "manylinux_2_28_x86_64", Member: "onnxruntime/capi/libonnxruntime.so.1.32.0", Size: 27780211,
		Sum: "6c1585d1bbf45b0712ea4a21b705c5fcb4ba04ff2e30f1fbf81a49faf658638f"},
	"linux/arm64": {Platform: "manylinux_2_28_aarch64", Member: "onnxruntime/capi/libonnxruntime.so.1.32.0", Size: 23196724,
		Sum: "49852228a93995158b2a813d4df487d47a1b76b0eaa894507ef49e91b6d7954a"},
	"darwin/arm64": {Platform: "macosx_14_0_arm64", Member: "onnxruntime/capi/libonnxruntime.1.32.0.dylib", Size: 22519308,
		Sum: "fa585fabbea65b823b9a8f7e27d46aee3989d1be7e36b528203d3a1fd613aae7"},
	"windows/amd64": {Platform: "win_amd64", Member: "onnxruntime/capi/onnxruntime.dll", Size: 16698767,
		Sum: "443c0065fcdba17618ddef05050308f4b471893c5c7da0337d6957c9073ad8a7"},
	"windows/arm64": {Platform: "win_arm64", Member: "onnxruntime/capi/onnxruntime.dll", Size: 16030610,
		Sum: "a5c1951a7d495fa0c22a0865fe36981fe67f9d5dc7ba3893c20fa7266dd1e994"},
}

// Wheels returns a source of wheels of a package, by platform.
func Wheels(ref, version string, wheels map[string]Build) Source {
	return Source{name: "pip", build: builds(version, ref, wheels), fetch: pipFetch}
}

// pips are commands that may start pip.
var pips = [][]string{{"python3", "-m", "pip"}, {"python", "-m", "pip"}, {"py", "-m", "pip"}, {"pip3"}, {"pip"}}

// findPip returns the command line of the first pip that runs.
func findPip(ctx context.Context) ([]string, error) {
	for _, p := range pips {
		if _, err := exec.LookPath(p[0]); err != nil {
			continue
		}
		// Python may lack pip, and a command on the PATH may not start.
		if exec.CommandContext(ctx, p[0], append(p[1:len(p):len(p)], "--version")...).Run() == nil {
			return p, nil
		}
	}
	return nil, errAbsent
}

// pipFetch downloads the wheels of a build by pip, and extracts the library to the file into and the others
// beside it.
func pipFetch(ctx context.Context, p *provisioner, b Build, into string) error {
	client, err := findPip(ctx)
	if err != nil {
		return err
	}
	refs := []string{b.ref}
	for _, f := range b.Beside {
		if f.Ref != "" && !slices.Contains(refs, f.Ref) {
			refs = append(refs, f.Ref)
		}
	}
	args := append(client[1:len(client):len(client)], "download")
	args = append(args, refs...)
	args = append(args, "--no-deps", "--only-binary=:all:",
		"--python-version=3.12", "--implementation=cp", "--platform="+b.Platform, // whatever this machine has
		"--dest="+p.staging, "--no-input", "--disable-pip-version-check", "--quiet")
	if err := p.runClient(ctx, b, "pip", client[0], args...); err != nil {
		return err
	}
	wheels := map[string]string{}
	for _, ref := range refs {
		name, _, _ := strings.Cut(ref, "==")
		found := files.Glob(p.staging, strings.ReplaceAll(name, "-", "_")+"-*.whl")
		if len(found) != 1 {
			return fmt.Errorf("it left %d wheels of %s, not one", len(found), ref)
		}
		wheels[ref] = found[0]
	}
	for _, f := range b.Beside {
		if err := extract(wheels[cmp.Or(f.Ref, b.ref)], f.Member, filepath.Join(filepath.Dir(into), path.Base(f.Member)), f.Sum); err != nil {
			return err
		}
	}
	return extract(wheels[b.ref], b.Member, into, b.Sum)
}
