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
)

// pinned is the version of ONNX Runtime that most sources fetch.
const pinned = "1.31.1"

// pip downloads the wheel of the Python package onnxruntime, pipCUDA that of
// onnxruntime-gpu, which has the library and its CUDA provider. The wheel is
// that for one fixed version of Python, whatever version this machine has.
var (
	pip     = wheelSource("onnxruntime=="+pinned, pinned, wheels)
	pipCUDA = wheelSource(cudaRef, pinned, cudaWheels)
)

const cudaRef = "onnxruntime-gpu==" + pinned

type wheelBuild struct {
	build
	platform string // pip's name for it
}

var wheels = map[string]wheelBuild{
	"linux/amd64": {build{member: "onnxruntime/capi/libonnxruntime.so.1.31.1", size: 23760988,
		sum: "fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3"}, "manylinux_2_28_x86_64"},
	"linux/arm64": {build{member: "onnxruntime/capi/libonnxruntime.so.1.31.1", size: 21420803,
		sum: "8aa3b76b28c778a2b1dd660d34161adb1d508c9ccd04ff9dc80e26eca5df8467"}, "manylinux_2_28_aarch64"},
	"darwin/arm64": {build{member: "onnxruntime/capi/libonnxruntime.1.31.1.dylib", size: 20882125,
		sum: "d586cbe89effc085a09d3341b3cfbd5c322517f9d397aeb20814af21433f2b36"}, "macosx_14_0_arm64"},
	"windows/amd64": {build{member: "onnxruntime/capi/onnxruntime.dll", size: 14888466,
		sum: "e45f61e50d8650885452be538a00bb14a715e46a1bc3691000ce947e89ed0306"}, "win_amd64"},
	"windows/arm64": {build{member: "onnxruntime/capi/onnxruntime.dll", size: 14740724,
		sum: "dc9e2fe646a72829386a24ac9185a7a4e26d7dbe5dc433d41df063603c00bbc7"}, "win_arm64"},
}

// cudaWheels are built with CUDA 13 and cuDNN 9, but do not contain these.
var cudaWheels = map[string]wheelBuild{
	"linux/amd64": {build{variant: "cuda13", member: "onnxruntime/capi/libonnxruntime.so.1.31.1", size: 255569273,
		sum: "5104254339ecadae808da771bd0b63b240f0dbd466514234905e54372435c303",
		beside: []part{
			{member: "onnxruntime/capi/libonnxruntime_providers_shared.so", sum: "086ec1d5388f64153d9c63470d126693db9a182c8ce236d3a1119068471b8a0d"},
			{member: "onnxruntime/capi/libonnxruntime_providers_cuda.so", sum: "8387867e857499e045caff5d13ac6a5de29571c801562fa2dde0e45f1f31de52"},
		}}, "manylinux_2_28_x86_64"},
}

// wheelSource returns a source that has wheels of one package, by platform.
func wheelSource(ref, version string, wheels map[string]wheelBuild) source {
	return source{
		name: "pip",
		build: func(goos, goarch string) (build, bool) {
			w, ok := wheels[goos+"/"+goarch]
			w.version, w.ref = version, ref
			return w.build, ok
		},
		fetch: func(ctx context.Context, p *provisioner, b build, into string) error {
			return pipFetch(ctx, p, b, wheels[p.goos+"/"+p.goarch].platform, into)
		},
	}
}

// pips are the commands that may start pip.
var pips = [][]string{{"python3", "-m", "pip"}, {"python", "-m", "pip"}, {"py", "-m", "pip"}, {"pip3"}, {"pip"}}

// findPip returns the command line of the first pip that runs.
func findPip(ctx context.Context) ([]string, error) {
	for _, p := range pips {
		if _, err := exec.LookPath(p[0]); err != nil {
			continue
		}
		// Python may be without pip, and a command on the PATH may not start.
		if exec.CommandContext(ctx, p[0], append(p[1:len(p):len(p)], "--version")...).Run() == nil {
			return p, nil
		}
	}
	return nil, errAbsent
}

func pipFetch(ctx context.Context, p *provisioner, b build, platform, into string) error {
	client, err := findPip(ctx)
	if err != nil {
		return err
	}
	refs := []string{b.ref}
	for _, f := range b.beside {
		if f.ref != "" && !slices.Contains(refs, f.ref) {
			refs = append(refs, f.ref)
		}
	}
	args := append(client[1:len(client):len(client)], "download")
	args = append(args, refs...)
	args = append(args, "--no-deps", "--only-binary=:all:",
		"--python-version=3.12", "--implementation=cp", "--platform="+platform,
		"--dest="+p.staging, "--no-input", "--disable-pip-version-check", "--quiet")
	if err := p.runClient(ctx, b, "pip", client[0], args...); err != nil {
		return err
	}
	wheels := map[string]string{}
	for _, ref := range refs {
		name, _, _ := strings.Cut(ref, "==")
		found, err := filepath.Glob(filepath.Join(p.staging, strings.ReplaceAll(name, "-", "_")+"-*.whl"))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("it left %d wheels of %s, not one", len(found), ref)
		}
		wheels[ref] = found[0]
	}
	for _, f := range b.beside {
		if err := extract(wheels[cmp.Or(f.ref, b.ref)], f.member, filepath.Join(filepath.Dir(into), path.Base(f.member)), f.sum); err != nil {
			return err
		}
	}
	return extract(wheels[b.ref], b.member, into, b.sum)
}
