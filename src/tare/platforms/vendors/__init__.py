"""Code that drivers of hypervisors with a vendor's API over a network share.

A driver subclasses :class:`~tare.platforms.vendors.platform.VendorPlatform`: it says how to log in,
what must be at the server, what machines boot, and how a virtual machine is created. It has

- options that subclass :class:`~tare.platforms.vendors.options.VendorOptions` (address,
  credentials, private CA, callback);
- an :class:`~tare.platforms.vendors.session.AccountSession`, which logs in, logs in again once if
  the session has expired, and removes secrets from every error;
- a ``VmBuilder``, which finds what the options name and creates a VM;
- :class:`~tare.platforms.vendors.resource.ServerResource`: what it creates, finds and removes;
- a :class:`~tare.platforms.vendors.machine.VirtualMachine` (state, power, disturbances, figures).

``VendorPlatform.start`` starts every machine in the same steps:

1. It logs in.
2. It listens where the guest can reach it, and makes a key for this machine
   (:class:`~tare.platforms.vendors.callback.CallbackListener`).
3. ``VmRequest.image`` is an ISO 9660 image labelled TARE-CFG with the machine's configuration and
   its key: a second CD, or a raw disk on a platform without CDs. Nothing else carries the key.
4. The driver's ``make`` calls ``VmRequest.create`` for each resource. This records the resource in
   the ledger, creates it, and removes it when the machine stops or if a later step fails.
5. A :class:`~tare.platforms.vendors.machine.VendorMachine` holds all that, and ``bring_up``
   switches the machine on.

``tare clean`` removes the same resources from the ledger's entries, see
:func:`~tare.platforms.vendors.resource.undo_at`. Tests use ``tare.testing.simulated_guest`` in
place of a guest's firmware if a simulator boots nothing: it reads the image and starts ``tare-agent
dial``.
"""
