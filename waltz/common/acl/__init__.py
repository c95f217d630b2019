"""Access rules: who may do what, by the certificates and tokens of peers. Off by default, and then no node loads this.

1. ``document``: the rules as they are stored, read by ``json_pieces``. Pure. ``mapping``: the principal of a
   certificate's subject. Pure.
2. ``rules``: the rules compiled; decisions and explanations. ``changes``: the rules changed by commands;
   ``suggestions``: rules from audit logs. Pure.
3. ``enforcement``: the rights of a node's peers, through changes of the rules; ``refusals``: counts and log messages;
   ``audit``: lines about who did what, folded; ``audit_file``: their file. ``throttling``: the quotas of a server's
   clients; ``quotas``: what is used of one. Pure.
4. ``tokens``: what bearer tokens prove. Pure but for the clock. ``token_files``: their keys, followed.
   ``claims``: what a refused token says. Pure.
5. ``store``: the rules in ZooKeeper; ``watch``: a node follows them and says which it applies; ``node`` starts all;
   ``late_nodes``: who may still apply older ones; ``config_problems``: the check of a node's settings.
"""
