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
const pinned = "1.31.1"

// pip downloads the wheel of the Python package onnxruntime: that for one fixed version
// of Python, whatever version this machine has.
var pip = Wheels("onnxruntime=="+pinned, pinned, wheels)

var wheels = map[string]Build{
	"linux/amd64": {Platform: "manylinux_2_28_x86_64", Member: "onnxruntime/capi/libonnxruntime.so.1.31.1", Size: 23760988,
		Sum: "fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3"},
	"linux/arm64": {Platform: "manylinux_2_28_aarch64", Member: "onnxruntime/capi/libonnxruntime.so.1.31.1", Size: 21420803,
		Sum: "8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467"},
	"darwin/arm64": {Platform: "macosx_14_0_arm64", Member: "onnxruntime/capi/libonnxruntime.1.31.1.dylib", Size: 20882125,
		Sum: "d586cbe89effc085a09d3341b3cfbd5c322517f9d397aeb20814af21433f2b36"},
	"windows/amd64": {Platform: "win_amd64", Member: "onnxruntime/capi/onnxruntime.dll", Size: 14888466,
		Sum: "e45f61e50d8650885452be538a00bb14a715e46a1bc3691000ce947e89ed0306"},
	"windows/arm64": {Platform: "win_arm64", Member: "onnxruntime/capi/onnxruntime.dll", Size: 14740724,
		Sum: "dc9e2fe646a72829386a24ac9185a7a4e26d7dbe5dc433d41df063603c00bbc7"},
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
		"--python-version=3.12", "--implementation=cp", "--platform="+b.Platform,
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
