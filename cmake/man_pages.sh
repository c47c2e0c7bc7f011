#!/bin/sh
# Build tool: from scdoc's sources to manual pages. usage: man_pages.sh SCDOC FOLDER
set -e
cd "$2"
for page in *.scd; do
	"$1" <"$page" >"${page%.scd}"
done
