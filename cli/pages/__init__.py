"""The pages of `gpuplan ui`: what is kept on this machine, read-only, for a browser on it.

`door` lets requests in, `app` has the routes, `views`, `project_views`, `launch_views` and
`price_views` say what is on each page, `page` turns a view into HTML, and `server` listens on
127.0.0.1. Charts are SVG: `drawing` has what they share, `front_chart`, `burn_charts` and
`time_line` draw them.
"""
