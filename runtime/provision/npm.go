package provision

import (
	"context"
	"fmt"
	"os/exec"

	"onering/internal/files"
)

// npm downloads the Node.js package onnxruntime-node, one archive for all
// platforms. Its own install script is not run.
var npm = Source{name: "npm", build: builds(npmVersion, "onnxruntime-node@"+npmVersion, nodeBuilds), fetch: npmFetch}

// npmVersion is the newest version of the package.
const npmVersion = "1.30.0"

var nodeBuilds = map[string]Build{
	"linux/amd64": {Member: "package/bin/napi-v6/linux/x64/libonnxruntime.so.1", Sum: "ffb75a925ba05e47b235bb66e3e3911714a80b328a9c9425539feb204aa32a23"},
	"linux/arm64": {Member: "package/bin/napi-v6/linux/arm64/libonnxruntime.so.1", Sum: "1f549d46250b005580b597f4164984aaf75b3bcb9f3aeb07c7f8a8fe60b23c76"},
	"darwin/arm64": {Member: "package/bin/napi-v6/darwin/arm64/libonnxruntime.1.30.0.dylib",
		Sum: "685d2be5dba1309c89d3a5324b7fd06a5c42f1a61bfea32d14c4cc28d072121d"},
	"windows/amd64": {Member: "package/bin/napi-v6/win32/x64/onnxruntime.dll", Sum: "508c362f5673483dd3a086379c392795b2e42d10d5e6f3f90ebd7ac21c97af67"},
	"windows/arm64": {Member: "package/bin/napi-v6/win32/arm64/onnxruntime.dll", Sum: "6c3a2abf5c6aca11c48a0d338a91af309f2266f25ce2e4084e6a87bbcb0fbfd0"},
}

// npmFetch downloads the package by npm pack and extracts the library of a build to the file into.
func npmFetch(ctx context.Context, p *provisioner, b Build, into string) error {
	client, err := exec.LookPath("npm")
	if err != nil {
		return errAbsent
	}
	// npm packs into the working folder. It downloads to its cache first, so the size is unknown until it is done.
	if err := p.runClient(ctx, b, "npm", client, "pack", b.ref, "--ignore-scripts", "--silent"); err != nil {
		return err
	}
	found := files.Glob(p.staging, "onnxruntime-node-*.tgz")
	if len(found) != 1 {
		return fmt.Errorf("it left %d archives, not one", len(found))
	}
	return extract(found[0], b.Member, into, b.Sum)
}
